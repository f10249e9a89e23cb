//! The simulated network between clients and the [`Server`], with injected faults.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::faults::Fault;
use super::server::Server;
use crate::kube::client::connection::{Connecting, Network, Stream};

/// The network that connects clients to the server.
pub struct SimulatedNetwork(pub Arc<Server>);

impl Network for SimulatedNetwork {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> Connecting<'a> {
        Box::pin(async move {
            sleep(Duration::from_millis(1)).await;
            if self.0.has_fault(|fault| *fault == Fault::DnsFailure) {
                self.0.count_failed_connection();
                return Err(format!("no address of {host}: Name or service not known").into());
            }
            // A client retries its first request only after a while. The connection is therefore delayed until the
            // end of the fault.
            let held = |fault: &Fault| {
                matches!(fault, Fault::ConnectTimeout | Fault::Restored { held: true })
            };
            self.0.wait_for_end_of(held).await;
            let refused = |fault: &Fault| {
                matches!(fault, Fault::Refused | Fault::Restarted { .. } | Fault::Restored { .. })
            };
            if self.0.has_fault(refused) {
                self.0.count_failed_connection();
                return Err(format!("{host}:{port}: Connection refused").into());
            }
            Ok(Box::new(self.0.connect()) as Box<dyn Stream>)
        })
    }
}
