"""Where a recipe becomes a network, data and training, in a folder that can be gone on with."""

from invint.run.carrying_out import train_run as train_run
from invint.run.execution import Execution as Execution
from invint.run.watch import Watch as Watch
