"""Counts 2,000 times with the PyPI packages `statsd` and `datadog`:

python_batching.py statsd default|pipeline HOST PORT
python_batching.py datadog default|buffering udp|unixgram HOST|PATH PORT
"""

import sys

package, settings, *where = sys.argv[1:]
CALLS = 2000
NAMES = [f"batching.requests{number}" for number in range(20)]

if package == "statsd":
    import statsd

    client = statsd.StatsClient(host=where[0], port=int(where[1]))
    if settings == "default":
        for call in range(CALLS):
            client.incr(NAMES[call % 20])
    else:
        with client.pipeline() as batch:
            for call in range(CALLS):
                batch.incr(NAMES[call % 20])
else:
    from datadog.dogstatsd import DogStatsd

    transport, host, port = where
    address = {"socket_path": host} if transport == "unixgram" else {"host": host, "port": int(port)}
    options = {"disable_buffering": False} if settings == "buffering" else {}
    client = DogStatsd(**address, **options, disable_telemetry=True)
    for call in range(CALLS):
        client.increment(NAMES[call % 20])
    client.flush()
