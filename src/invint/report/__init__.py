"""One page about finished runs: tables, figures and pictures in a file that needs nothing else."""

from invint.report.page import write_report as write_report
