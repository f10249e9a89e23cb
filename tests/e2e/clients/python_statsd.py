"""Sends with the PyPI package `statsd`: python_statsd.py udp|tcp HOST PORT PREFIX"""

import sys

import statsd

transport, host, port, prefix = sys.argv[1:]
kind = {"udp": statsd.StatsClient, "tcp": statsd.TCPStatsClient}[transport]
client = kind(host=host, port=int(port), prefix=prefix)
client.incr("hits")
client.incr("hits", 4)
client.gauge("level", 42.5)
client.gauge("level", -2, delta=True)
for milliseconds in (125, 250, 500):
    client.timing("took", milliseconds)
with client.pipeline() as batch:
    batch.incr("batched", 2)
    batch.incr("batched", 3)
client.close()
