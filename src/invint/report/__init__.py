"""One page about finished runs: tables, figures and pictures in a file that needs nothing else."""

from invint.report.measure import hardest_images as hardest_images
from invint.report.measure import measure_turns as measure_turns
from invint.report.measure import store_of as store_of
from invint.report.page import write_report as write_report
from invint.report.saliency import saliency as saliency
