"""A folder of pictures in, a classifier and advice out."""

from invint.fit.answers import Answer as Answer
from invint.fit.folder import FitConfig as FitConfig
from invint.fit.folder import FitResult as FitResult
from invint.fit.folder import fit_folder as fit_folder
from invint.fit.folder import name_of as name_of
