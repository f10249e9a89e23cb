//! The threads of a pipeline: receiving threads and the expiry thread. Opens the configured listeners and
//! closes them at the end.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};

use super::config::{PipelineConfig, StartError};
use crate::statsd::ingest::Shared;
use crate::statsd::metrics::{Listener, bump};
use crate::statsd::receive::net;
use crate::statsd::receive::receiver::{ReceiveLoop, Receiver};
use crate::statsd::supervise::SupervisedThread;
use crate::util::descriptors;
use crate::util::lock::Lock;

/// The running threads. Dropping this stops them.
pub(super) struct Threads {
    pub(super) shared: Arc<Shared>,
    /// The addresses in use, with the actual port if 0 was configured.
    pub(super) udp: Option<SocketAddr>,
    pub(super) tcp: Option<SocketAddr>,
    /// The receiving threads. The first one serves all listeners except additional UDP sockets.
    pub(super) receivers: Vec<Receiver>,
    /// The file of the Unix socket, to be removed at the end.
    pub(super) unix_file: Option<Arc<SocketFile>>,
    pub(super) expiry: Option<Expiry>,
}

impl Threads {
    /// Opens the listeners and starts receiving.
    pub(super) fn listen(&mut self, config: &PipelineConfig) -> Result<(), StartError> {
        let failed = |listener: Listener, address: &dyn ToString| {
            let (listener, address) = (listener.as_str(), address.to_string());
            move |source| StartError::Listen { listener, address, source }
        };
        let shared = Arc::clone(&self.shared);
        let new = || ReceiveLoop::new(&shared).map_err(StartError::Thread);
        let mut loops = vec![new()?];
        let (buffer, several) = (config.read_buffer, config.udp_sockets > 1);
        self.udp = config.udp;
        for number in 0..config.udp_sockets.max(1) {
            let Some(address) = self.udp else { break };
            let socket =
                net::bind_udp(address, buffer, several).map_err(failed(Listener::Udp, &address))?;
            // With port 0 the first socket determines the port of the others.
            let bound = socket.local_addr().ok().and_then(|bound| bound.as_socket());
            let address = bound.unwrap_or(address);
            self.udp = Some(address);
            let open = Box::new(move || net::bind_udp(address, buffer, several));
            if number > 0 {
                loops.push(new()?);
            }
            loops[number]
                .add_datagrams(Listener::Udp, number, socket, open)
                .map_err(StartError::Thread)?;
        }
        let first = &mut loops[0];
        if let Some(address) = config.tcp {
            let mut listen = || {
                let listener = net::bind_tcp(address)?;
                let bound = listener.local_addr()?;
                first.add_tcp(listener, config.tcp_idle, descriptors::of_process())?;
                Ok(bound)
            };
            self.tcp = Some(listen().map_err(failed(Listener::Tcp, &address))?);
        }
        if let Some(name) = &config.unixgram {
            self.listen_unix(name, config, first).map_err(failed(Listener::Unixgram, name))?;
        }
        for (number, each) in loops.into_iter().enumerate() {
            self.receivers.push(each.start(number).map_err(StartError::Thread)?);
        }
        Ok(())
    }

    fn listen_unix(
        &mut self,
        name: &str,
        config: &PipelineConfig,
        first: &mut ReceiveLoop,
    ) -> io::Result<()> {
        let file = (!name.starts_with('@')).then(|| Arc::new(SocketFile::new(name)));
        // Stored before the file exists, so that it is removed after any failure.
        self.unix_file.clone_from(&file);
        let (buffer, mode) = (config.read_buffer, config.unixgram_mode);
        let wants_credentials = config.pods.is_some();
        let (created, name) = (file.clone(), name.to_owned());
        let open = move || {
            let socket = net::bind_unixgram(&name, buffer)?;
            socket.set_passcred(wants_credentials)?;
            if let Some(file) = &created {
                file.record_created();
                mode.map_or(Ok(()), |mode| set_mode(&file.path, mode))?;
            }
            Ok(socket)
        };
        let socket = open()?;
        let reopen = move || {
            if let Some(file) = &file {
                // A new socket cannot be bound while the file of the old one exists.
                file.remove()?;
            }
            open()
        };
        first.add_datagrams(Listener::Unixgram, 0, socket, Box::new(reopen))
    }

    /// Stops the listeners after they have processed what they had received, then the relay after it has sent
    /// everything.
    pub(super) fn stop(&self) {
        if let Some(file) = &self.unix_file
            && let Err(error) = file.remove()
        {
            tracing::warn!(file = %file.path.display(), %error, "Cannot remove the socket file");
        }
        for receiver in &self.receivers {
            receiver.shutdown();
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

/// The identity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

/// The file of the Unix socket. It is removed only if it is still the file that this process created.
pub(super) struct SocketFile {
    path: PathBuf,
    /// The created file. Its ID is unique as long as the socket is open.
    created: Lock<Option<FileId>>,
}

impl SocketFile {
    fn new(path: &str) -> Self {
        Self { path: PathBuf::from(path), created: Lock::default() }
    }

    fn current(&self) -> io::Result<FileId> {
        let metadata = self.path.symlink_metadata()?;
        Ok(FileId { device: metadata.dev(), inode: metadata.ino() })
    }

    /// Records the file of a socket that was just bound.
    fn record_created(&self) {
        *self.created.lock() = self.current().ok();
    }

    /// Removes the file if it is still ours.
    fn remove(&self) -> io::Result<()> {
        let mut created = self.created.lock();
        if created.is_some() && self.current().ok() == *created {
            std::fs::remove_file(&self.path)?;
        }
        *created = None;
        Ok(())
    }
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode & 0o777))
}

/// A message to the expiry thread.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wakeup {
    /// Something is due earlier than expected.
    Due,
    Stop,
}

/// Wakes the expiry thread. If its queue is full, it is about to wake.
pub(super) fn wake(thread: &SyncSender<Wakeup>) {
    let _ = thread.try_send(Wakeup::Due);
}

/// The thread that removes expired series and logs violations of budgets. It sleeps while nothing is due.
pub(super) struct Expiry {
    waker: SyncSender<Wakeup>,
    thread: SupervisedThread,
}

impl Expiry {
    pub(super) fn start(
        shared: Arc<Shared>,
        waker: SyncSender<Wakeup>,
        wakeups: mpsc::Receiver<Wakeup>,
    ) -> io::Result<Self> {
        let counted = Arc::clone(&shared);
        // Outlives a panic.
        let mut is_stopping = false;
        let thread = SupervisedThread::spawn(
            "statsd-expiry",
            move || bump(&counted.metrics.expiry_restarts),
            move || {
                while !is_stopping {
                    let wakeup = match shared.run_due() {
                        Some(timeout) => wakeups.recv_timeout(timeout),
                        None => wakeups.recv().map_err(RecvTimeoutError::from),
                    };
                    is_stopping = wakeup == Ok(Wakeup::Stop);
                }
                // The listeners have stopped, so there will be no further violations.
                shared.registry.violations.report(shared.registry.clock.now());
            },
        )?;
        Ok(Self { waker, thread })
    }

    fn shutdown(&self) {
        // Fails if the thread has ended.
        let _ = self.waker.send(Wakeup::Stop);
        self.thread.join();
    }
}
