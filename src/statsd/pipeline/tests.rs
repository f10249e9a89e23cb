//! Pipelines for the tests of others.

use super::*;

impl Pipeline {
    /// Starts a pipeline without listeners and rules, whose relay has no thread. Returns it with what takes the lines that the relay
    /// was to send so far.
    pub(crate) fn start_relaying(
        config: PipelineConfig,
    ) -> (Self, Box<dyn FnMut() -> Vec<u8> + Send>) {
        let target = crate::statsd::RelayConfig {
            address: "relay".to_owned(),
            target: "127.0.0.1:9".to_owned(),
            packet_length: 0,
        };
        let (relay, sender) = Relay::new(&target).expect("an address");
        let pipeline = Self::start_with(config, Mapper::default(), Some(relay));
        let take = move || sender.queue.try_iter().flat_map(|batch| batch.text).collect();
        (pipeline.expect("a pipeline without listeners"), Box::new(take))
    }

    /// Applies lines of a client, each followed by a line feed, as those of a UDP socket.
    pub(crate) fn receive(&self, text: &[u8]) {
        let mut worker = Worker::new(&self.shared, Listener::Udp);
        worker.begin();
        worker.lines(text.strip_suffix(b"\n").unwrap_or(text));
        worker.end();
    }
}
