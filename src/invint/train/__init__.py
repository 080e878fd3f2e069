"""Training: a recipe becomes a network in a folder from which it can be resumed."""

from invint.train.callbacks import Callback as Callback
from invint.train.callbacks import Callbacks as Callbacks
from invint.train.device import Execution as Execution
from invint.train.run import train_run as train_run
