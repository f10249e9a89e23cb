// Sends with the npm package hot-shots: hot_shots.js udp|tcp HOST PORT PREFIX | uds PATH - PREFIX
const { StatsD } = require("hot-shots");

const [protocol, where, port, prefix] = process.argv.slice(2);
const address = protocol === "uds" ? { path: where } : { host: where, port: Number(port) };
const fail = (error) => {
  console.error(error);
  process.exit(1);
};
const client = new StatsD({ protocol, ...address, prefix: prefix + ".", globalTags: { env: "e2e" }, errorHandler: fail });

const sends = [
  (done) => client.increment("hits", 1, ["code:200"], done),
  (done) => client.increment("hits", 4, ["code:200"], done),
  (done) => client.gauge("level", 42.5, done),
  (done) => client.gaugeDelta("level", -2, done),
  (done) => client.timing("took", 250, done),
  (done) => client.histogram("size", 0.5, done),
  (done) => client.distribution("spread", 1.5, done),
];
const next = (error) => {
  if (error) fail(error);
  const send = sends.shift();
  if (send) send(next);
  else client.close((error) => error && fail(error));
};
next();
