"""Sends with the PyPI package `datadog`: python_datadog.py udp HOST PORT PREFIX | unixgram PATH - PREFIX"""

import sys

from datadog.dogstatsd import DogStatsd

transport, where, port, prefix = sys.argv[1:]
address = {"socket_path": where} if transport == "unixgram" else {"host": where, "port": int(port)}
client = DogStatsd(
    namespace=prefix,
    constant_tags=["env:e2e"],
    disable_telemetry=True,
    origin_detection_enabled=False,
    **address,
)
client.increment("hits", tags=["path:/a,b", "code:200"])
client.increment("hits", 4, tags=["path:/a,b", "code:200"])
client.gauge("level", 42.5)
for value in (0.5, 1.5, 4):
    client.histogram("size", value)
    client.distribution("spread", value, tags=["k:v"])
client.timing("took", 250)
client.event("deployed", "to production", tags=["team:x"])
client.service_check("db", DogStatsd.OK, message="fine")
client.flush()
client.close_socket()
