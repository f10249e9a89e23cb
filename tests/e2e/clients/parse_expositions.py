"""Parses expositions with the reference parsers of prometheus-client: parse_expositions.py FOLDER

Files named *.om are OpenMetrics, all others the text format. Prints each rejected file with the reason."""

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
