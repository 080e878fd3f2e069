"""Networks as files: ONNX, `torch.export` and safetensors, compared before they are in place."""

from invint.export.card import KEY as KEY
from invint.export.card import ModelCard as ModelCard
from invint.export.files import FORMATS as FORMATS
from invint.export.files import LoadedModel as LoadedModel
from invint.export.files import Normalised as Normalised
from invint.export.files import export_model as export_model
from invint.export.files import load_model as load_model
from invint.export.files import load_network as load_network
from invint.export.files import network_bytes as network_bytes
from invint.export.hub import from_pretrained as from_pretrained
from invint.export.hub import push_to_hub as push_to_hub
from invint.export.hub import save_pretrained as save_pretrained
