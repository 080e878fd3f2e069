"""A folder of images in, a classifier and advice out."""

from invint.assist.fitting import Fitted as Fitted
from invint.assist.fitting import Onlooker as Onlooker
from invint.assist.fitting import Wish as Wish
from invint.assist.fitting import fit_folder as fit_folder
from invint.assist.fitting import name_of as name_of
from invint.assist.plan import Plan as Plan
