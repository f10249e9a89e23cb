// Counts 2,000 times with the npm package hot-shots: hot_shots_batching.js default|buffering udp|uds HOST|PATH PORT
const { StatsD } = require("hot-shots");

const [settings, protocol, where, port] = process.argv.slice(2);
const address = protocol === "uds" ? { path: where } : { host: where, port: Number(port) };
const buffer = settings === "buffering" ? { maxBufferSize: 1432 } : {};
const fail = (error) => {
  console.error(error);
  process.exit(1);
};
const client = new StatsD({ protocol, ...address, ...buffer, errorHandler: fail });

let calls = 0;
const next = () => {
  // A pause lets what was sent leave.
  for (let burst = 0; burst < 20; burst++, calls++) client.increment(`batching.requests${calls % 20}`);
  if (calls < 2000) setImmediate(next);
  else client.close((error) => error && fail(error));
};
next();
