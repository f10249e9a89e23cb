//! The threads of a pipeline: those that take lines and the one that removes expired series. Which listeners there are
//! comes in with the configuration; they are opened here and closed at the stop.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::config::{PipelineConfig, StartError};
use crate::descriptors;
use crate::statsd::clock::{TICK_NANOS, TICKS_PER_SECOND};
use crate::statsd::ingest::Shared;
use crate::statsd::metrics::{Listener, bump};
use crate::statsd::receive::intake::{Intake, Preparation};
use crate::statsd::receive::net;
use crate::statsd::supervise;

/// What runs. Dropping it stops it.
pub(super) struct Threads {
    pub(super) shared: Arc<Shared>,
    /// The first takes from all listeners but the UDP sockets beyond the first.
    pub(super) intakes: Vec<Intake>,
    /// File of the Unix socket, to be removed at the end.
    pub(super) unix_file: Option<Arc<SocketFile>>,
    pub(super) expiry: Option<Expiry>,
}

impl Threads {
    /// Opens the listeners and begins to receive; the UDP and the TCP address in use.
    pub(super) fn listen(
        &mut self,
        config: &PipelineConfig,
    ) -> Result<(Option<SocketAddr>, Option<SocketAddr>), StartError> {
        let failed = |listener: Listener, address: &dyn ToString| {
            let (listener, address) = (listener.as_str(), address.to_string());
            move |source| StartError::Listen { listener, address, source }
        };
        let mut prepared = Vec::new();
        let mut first = Preparation::new(&self.shared).map_err(StartError::Thread)?;
        let (buffer, several) = (config.read_buffer, config.udp_sockets > 1);
        let mut udp = config.udp;
        for number in 0..config.udp_sockets.max(1) {
            let Some(address) = udp else { break };
            let socket =
                net::bind_udp(address, buffer, several).map_err(failed(Listener::Udp, &address))?;
            // With port 0 the first socket decides for the others.
            let bound = socket.local_addr().ok().and_then(|bound| bound.as_socket());
            let address = bound.unwrap_or(address);
            udp = Some(address);
            let open = Box::new(move || net::bind_udp(address, buffer, several));
            let more = if number == 0 {
                None
            } else {
                Some(Preparation::new(&self.shared).map_err(StartError::Thread)?)
            };
            let extra = prepared.len();
            prepared.extend(more);
            prepared
                .get_mut(extra)
                .unwrap_or(&mut first)
                .datagrams(Listener::Udp, number, socket, open)
                .map_err(StartError::Thread)?;
        }
        let mut tcp = None;
        if let Some(address) = config.tcp {
            let listen = |first: &mut Preparation| {
                let listener = net::bind_tcp(address)?;
                let bound = listener.local_addr()?;
                first.tcp(listener, config.tcp_idle, descriptors::of_process())?;
                Ok(bound)
            };
            tcp = Some(listen(&mut first).map_err(failed(Listener::Tcp, &address))?);
        }
        if let Some(name) = &config.unixgram {
            self.listen_unix(name, config, &mut first).map_err(failed(Listener::Unixgram, name))?;
        }
        prepared.insert(0, first);
        for (number, preparation) in prepared.into_iter().enumerate() {
            self.intakes.push(preparation.start(number).map_err(StartError::Thread)?);
        }
        Ok((udp, tcp))
    }

    fn listen_unix(
        &mut self,
        name: &str,
        config: &PipelineConfig,
        preparation: &mut Preparation,
    ) -> io::Result<()> {
        let file = (!name.starts_with('@')).then(|| Arc::new(SocketFile::new(name)));
        // Before it is there, so that it goes whatever fails from here on.
        self.unix_file.clone_from(&file);
        let (buffer, mode) = (config.read_buffer, config.unixgram_mode);
        let (made, name) = (file.clone(), name.to_owned());
        let open = move || {
            let socket = net::bind_unixgram(&name, buffer)?;
            if let Some(file) = &made {
                file.is_made();
                mode.map_or(Ok(()), |mode| set_mode(&file.path, mode))?;
            }
            Ok(socket)
        };
        let socket = open()?;
        let reopen = move || {
            if let Some(file) = &file {
                // A new socket cannot be bound while that of the old one is there.
                file.remove()?;
            }
            open()
        };
        preparation.datagrams(Listener::Unixgram, 0, socket, Box::new(reopen))
    }

    /// Stops the listeners after they have taken what they had received, then the relay after it has sent it.
    pub(super) fn stop(&self) {
        if let Some(file) = &self.unix_file
            && let Err(error) = file.remove()
        {
            tracing::warn!(file = %file.path.display(), %error, "the socket file stays behind");
        }
        for intake in &self.intakes {
            intake.shutdown();
        }
        if let Some(relay) = &self.shared.relay {
            relay.shutdown();
        }
        if let Some(expiry) = &self.expiry {
            expiry.shutdown();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The file of the Unix socket. Only one that was made here is removed, never one that has taken its place since.
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode of what was made, which nothing else has as long as the socket is open.
    made: Mutex<Option<(u64, u64)>>,
}

impl SocketFile {
    fn new(path: &str) -> Self {
        Self { path: PathBuf::from(path), made: Mutex::default() }
    }

    fn made(&self) -> MutexGuard<'_, Option<(u64, u64)>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn there_is(&self) -> io::Result<(u64, u64)> {
        self.path.symlink_metadata().map(|metadata| (metadata.dev(), metadata.ino()))
    }

    /// A socket has just been bound to it.
    fn is_made(&self) {
        *self.made() = self.there_is().ok();
    }

    /// Removes it, if it is still ours.
    fn remove(&self) -> io::Result<()> {
        let mut made = self.made();
        if made.is_some() && self.there_is().ok() == *made {
            std::fs::remove_file(&self.path)?;
        }
        *made = None;
        Ok(())
    }
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode & 0o777))
}

/// Wakes the expiry thread.
#[derive(Debug, Default)]
pub(super) struct Signal {
    state: Mutex<SignalState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SignalState {
    woken: bool,
    stopping: bool,
}

impl Signal {
    fn set(&self, change: impl FnOnce(&mut SignalState)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    pub(super) fn wake(&self) {
        self.set(|state| state.woken = true);
    }

    /// Waits until woken or for `timeout`; returns whether to stop.
    fn wait(&self, timeout: Option<Duration>) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = |state: &mut SignalState| !state.woken && !state.stopping;
        let mut state = match timeout {
            None => self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                let waited = self.changed.wait_timeout_while(state, timeout, idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.woken = false;
        state.stopping
    }
}

/// The thread that removes expired series. It sleeps while nothing can expire.
pub(super) struct Expiry {
    signal: Arc<Signal>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Expiry {
    pub(super) fn start(shared: Arc<Shared>, signal: Arc<Signal>) -> io::Result<Self> {
        let (mine, counted) = (Arc::clone(&signal), Arc::clone(&shared));
        let thread = supervise::spawn(
            "statsd-expiry",
            move || bump(&counted.metrics.expiry_restarts),
            move || {
                loop {
                    let timeout = shared.registry.next_expiry().map(|second| {
                        let due = u64::from(second) * u64::from(TICKS_PER_SECOND) * TICK_NANOS;
                        let now = shared.registry.clock.now().nanos();
                        Duration::from_nanos(due.saturating_sub(now))
                    });
                    if mine.wait(timeout) {
                        return;
                    }
                    shared.registry.expire();
                }
            },
        )?;
        Ok(Self { signal, thread: Mutex::new(Some(thread)) })
    }

    fn shutdown(&self) {
        self.signal.set(|state| state.stopping = true);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the expiry thread panicked");
        }
    }
}
