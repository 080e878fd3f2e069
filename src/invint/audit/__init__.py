"""Does a classifier keep its answers as images turn? Numbers by angle, for a reader and for a CI.

Turns by multiples of 90° and mirrors permute pixels, so what changes under them is the model's
doing. At other angles interpolation has a share in every number.
"""

from invint.audit.measuring import audit_model as audit_model
from invint.audit.record import Audit as Audit
from invint.audit.subject import Model as Model
from invint.audit.turn import Turn as Turn
from invint.audit.turning import BORDERS as BORDERS
