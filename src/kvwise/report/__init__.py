"""Reports: what was measured or worked out, as a page, a picture, Markdown, CSV or JSON."""

from kvwise.report.document import Report
from kvwise.report.of_results import results_report
from kvwise.report.of_table import table_report
from kvwise.report.write import FORMATS, check, write

__all__ = ["FORMATS", "Report", "check", "results_report", "table_report", "write"]
