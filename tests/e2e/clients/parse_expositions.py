"""Reads expositions with the reference parsers of prometheus-client: parse_expositions.py FOLDER

A name that ends in .om is OpenMetrics, any other one the text format. Names each file that is refused, and why."""

import pathlib
import sys

from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics

refused = 0
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    read = openmetrics if path.suffix == ".om" else parser
    text = path.read_bytes().decode()
    try:
        samples = sum(len(family.samples) for family in read.text_string_to_metric_families(text))
        if samples == 0:
            raise ValueError("no samples")
    except Exception as error:
        refused += 1
        print(f"{path}: {error!r}")
sys.exit(1 if refused else 0)
