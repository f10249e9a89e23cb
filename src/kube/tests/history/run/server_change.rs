//! Reloads that lead to another API server, whose versions are lower and whose objects differ.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::queue::Action;
use super::super::setup::connect;
use super::{RELOAD, World};

/// The time after which a change of the server is tried again that has met a fault.
const AGAIN: Duration = Duration::from_secs(3);

impl World {
    /// Follows another server from now on, once there is no fault. The former one does not change any more.
    pub(super) fn change_server(&mut self) {
        let now = Instant::now();
        if !self.pending.is_empty() || !self.lasting.is_empty() || now < self.may_be_stale_until {
            self.queue.add(now + AGAIN, Action::ChangeServer);
            return;
        }
        self.server = self.server.successor(&self.scenario.kinds, &mut self.rng);
        self.scenario.restrict(&self.server);
        let folder = tempfile::tempdir().expect("a folder");
        self.client = Arc::new(connect(
            &self.server,
            folder.path(),
            (self.scenario.http2, self.scenario.plugin),
        ));
        self.folders.push(folder);
        self.may_be_stale_until = now + *RELOAD;
        // Nothing tells the objects of one cluster from new ones of the other.
        self.may_miss_events = true;
        self.apply();
    }
}
