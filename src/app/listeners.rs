//! The main and the telemetry listener of a process, which follow configuration reloads.
//!
//! A listener moves only when its address changes and the new address can be bound. Until then the old one keeps
//! serving and the new address is retried with backoff. Listeners that share a port or swap addresses hand their
//! sockets over.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;

use super::process::GRACE;
use crate::cli::config::{Config, Listener, Name};
use crate::server::authorisation::{Authorisation, Reviews};
use crate::server::listen::{self, BindError, ListenAddress};
use crate::server::router::Router;
use crate::server::serve::serve;
use crate::server::web_config::{WebConfig, WebConfigError};
use crate::tools::CommandError;
use crate::util::descriptors::Share;
use crate::util::waiting;

/// Initial backoff before a failed bind or web configuration is retried; doubles with each failure.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);

/// Upper limit of the backoff.
const MAX_BACKOFF: Duration = Duration::from_secs(15);

/// Bind attempts for an address that one of our own sockets has just released.
const REBIND_ATTEMPTS: u32 = 200;

/// The delay between two of them.
const REBIND_DELAY: Duration = Duration::from_millis(5);

/// The shortest interval between two attempts to bind an address for which the own socket has to be closed.
const REBIND_INTERVAL: Duration = Duration::from_secs(300);

/// The purpose of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Metrics and health.
    Main,
    /// Own metrics and profiles.
    Telemetry,
}

impl Role {
    fn other(self) -> Self {
        match self {
            Self::Main => Self::Telemetry,
            Self::Telemetry => Self::Main,
        }
    }

    /// Returns the descriptor budget that this listener's connections count against.
    fn share(self) -> Share {
        match self {
            Self::Main => Share::Http,
            Self::Telemetry => Share::Telemetry,
        }
    }
}

/// Builds the router of a listener; the flag enables gzip, and the path is that of the web configuration in use.
pub type Routers = Box<dyn Fn(Role, bool, Option<&Path>) -> Router + Send + Sync>;

/// The desired configuration of a listener.
#[derive(Clone, Debug)]
struct ListenerConfig {
    listener: Listener,
    gzip: bool,
    web: Option<Arc<WebConfig>>,
    authorised: bool,
}

/// The error for `--auth-filter` if no API server is configured to review callers.
const NO_API_SERVER: &str = "--auth-filter needs an API server, and none is configured: set --kubeconfig or --apiserver, or remove the flag";

/// A bound listener. Dropping it closes the socket after the responses in flight.
struct BoundListener {
    address: ListenAddress,
    /// A clone of the socket that the server accepts on, so that the next server can take it over.
    socket: TcpListener,
    /// The running server and its configuration; `None` after it has failed.
    server: Option<Server>,
}

struct Server {
    desired: ListenerConfig,
    task: Id,
    _trigger: oneshot::Sender<()>,
}

/// The listeners of a process.
pub struct Listeners {
    routers: Routers,
    /// The latest configuration; the listeners are brought in line with it.
    config: Config,
    web: Option<Arc<WebConfig>>,
    /// The authorisation cache of each listener; empty without an API server.
    filters: BTreeMap<Role, Arc<Authorisation>>,
    desired: BTreeMap<Role, ListenerConfig>,
    open: BTreeMap<Role, BoundListener>,
    servers: JoinSet<io::Result<()>>,
    failures: u32,
    retry: Option<Instant>,
    /// The addresses that could not be bound although the own socket was closed for it, and when that was.
    blocked: BTreeMap<Role, (ListenAddress, Instant)>,
}

impl ListenerConfig {
    /// Returns what a server is replaced for if it changes.
    fn key(&self) -> impl PartialEq + '_ {
        let Self { listener, gzip, web, authorised } = self;
        (&listener.address, &listener.limits, gzip, authorised, web.as_ref().map(Arc::as_ptr))
    }
}

impl BoundListener {
    fn matches(&self, desired: &ListenerConfig) -> bool {
        self.server.as_ref().is_some_and(|server| server.desired.key() == desired.key())
    }
}

impl Listeners {
    /// Binds all listeners of a configuration and starts serving. `web` is its [web configuration](web_config).
    ///
    /// # Errors
    ///
    /// Returns an error if an address cannot be bound, or if `--auth-filter` has no API server to ask.
    pub fn start(
        config: &Config,
        web: Option<Arc<WebConfig>>,
        routers: Routers,
        reviews: Option<Arc<dyn Reviews>>,
    ) -> Result<Self, CommandError> {
        if config.auth_filter && reviews.is_none() {
            return Err(NO_API_SERVER.into());
        }
        let filter = |role| {
            let reviews = reviews.clone()?;
            Some((role, Arc::new(Authorisation::new(reviews))))
        };
        let filters = [Role::Main, Role::Telemetry].into_iter().filter_map(filter).collect();
        let mut listeners = Self {
            routers,
            desired: desired(config, web.as_ref()),
            config: config.clone(),
            web,
            filters,
            open: BTreeMap::new(),
            servers: JoinSet::new(),
            failures: 0,
            retry: None,
            blocked: BTreeMap::new(),
        };
        for (role, desired) in listeners.desired.clone() {
            let socket = listen::bind(&desired.listener.address, desired.listener.flag);
            let served = socket.and_then(|socket| listeners.serve_on(role, socket, &desired));
            served.map_err(|error| error.to_string())?;
        }
        Ok(listeners)
    }

    /// Applies a new configuration. Addresses that cannot be bound now are retried.
    pub fn change(&mut self, config: &Config) {
        self.config = config.clone();
        self.failures = 0;
        self.blocked.clear();
        self.adjust();
    }

    /// Returns true once all listeners match the latest configuration.
    pub fn is_in_force(&self) -> bool {
        self.has_web()
            && (!self.config.auth_filter || !self.filters.is_empty())
            && self
                .desired
                .iter()
                .all(|(role, desired)| self.open.get(role).is_some_and(|o| o.matches(desired)))
    }

    /// Restarts failed servers and retries failed binds. Completes after each retry; cancel-safe.
    pub async fn next_event(&mut self) {
        loop {
            tokio::select! {
                () = waiting::until(self.retry) => {
                    self.adjust();
                    return;
                }
                Some(ended) = self.servers.join_next_with_id() => {
                    let (id, error) = match ended {
                        Ok((id, Ok(()))) => (id, None),
                        Ok((id, Err(error))) => (id, Some(error.to_string())),
                        Err(error) => (error.id(), Some(error.to_string())),
                    };
                    self.server_ended(id, error);
                }
            }
        }
    }

    /// Stops all listeners. Completes when the responses in flight are sent or their grace period is over.
    pub async fn stop(&mut self) {
        self.open.clear();
        while self.servers.join_next().await.is_some() {}
    }

    /// Schedules the restart of a server that has failed.
    fn server_ended(&mut self, id: Id, error: Option<String>) {
        let task = |open: &BoundListener| open.server.as_ref().map(|server| server.task);
        let open = self.open.values_mut().find(|open| task(open) == Some(id));
        match (open, error) {
            (Some(open), error) => {
                let error = error.unwrap_or_else(|| "the server has stopped".to_owned());
                tracing::error!(address = %open.address, error, "Listener failed, restarting it");
                open.server = None;
                self.schedule_retry();
            }
            (None, Some(error)) => tracing::warn!(error, "A replaced listener failed"),
            (None, None) => {}
        }
    }

    fn schedule_retry(&mut self) {
        let backoff = INITIAL_BACKOFF.saturating_mul(1 << self.failures.min(16)).min(MAX_BACKOFF);
        self.failures += 1;
        self.retry = Some(Instant::now() + backoff);
    }

    /// Returns true if the loaded web configuration is the configured one.
    fn has_web(&self) -> bool {
        self.web.as_ref().map(|web| &*web.path) == self.config.web_config.as_deref()
    }

    /// Brings the listeners in line with the configuration, as far as possible now.
    fn adjust(&mut self) {
        self.retry = None;
        let mut failed = false;
        if !self.has_web() {
            match web_config(&self.config) {
                Ok(web) => self.web = web,
                Err(error) => {
                    tracing::error!(%error, "Keeping the previous web configuration until the new one is valid");
                    failed = true;
                }
            }
        }
        if self.config.auth_filter && self.filters.is_empty() {
            tracing::error!(error = NO_API_SERVER, "Keeping the current listeners");
            return;
        }
        self.desired = desired(&self.config, self.web.as_ref());
        let clone = |(role, open): (&Role, &BoundListener)| {
            Some((*role, (open.address.clone(), open.socket.try_clone().ok()?)))
        };
        let mut before = self.open.iter().filter_map(clone).collect();
        for role in self.adjust_order() {
            let Some(desired) = self.desired.get(&role).cloned() else { continue };
            if self.open.get(&role).is_some_and(|open| open.matches(&desired)) {
                continue;
            }
            let socket = self.socket(role, &desired, &mut before);
            if let Err(error) = socket.and_then(|socket| self.serve_on(role, socket, &desired)) {
                tracing::error!(%error, "Cannot listen on the new address, keeping the old one and retrying");
                failed = true;
            }
        }
        if failed {
            self.schedule_retry();
        }
    }

    /// Returns the roles in the order to adjust them: a role that takes over another's address comes second.
    fn adjust_order(&self) -> [Role; 2] {
        let main = self.desired.get(&Role::Main).map(|desired| &desired.listener.address);
        let telemetry = self.open.get(&Role::Telemetry).map(|open| &open.address);
        if main.is_some() && main == telemetry {
            [Role::Telemetry, Role::Main]
        } else {
            [Role::Main, Role::Telemetry]
        }
    }

    /// Returns a socket for a listener: one of those `before` this change, if nobody else needs it, or else a new one.
    fn socket(
        &mut self,
        role: Role,
        desired: &ListenerConfig,
        before: &mut BTreeMap<Role, (ListenAddress, TcpListener)>,
    ) -> Result<TcpListener, BindError> {
        let address = &desired.listener.address;
        let had_address = |owner: &Role| before.get(owner).is_some_and(|(one, _)| one == address);
        let owner = [role, role.other()].into_iter().find(had_address);
        let owner = owner.filter(|owner| *owner == role || self.can_take(role, address));
        if let Some((_, socket)) = owner.and_then(|owner| before.remove(&owner)) {
            return Ok(socket);
        }
        match listen::bind(address, desired.listener.flag) {
            // Its own socket blocks the port, on another address of the host.
            Err(error)
                if error.source.kind() == io::ErrorKind::AddrInUse
                    && self.blocks(role, address) =>
            {
                before.remove(&role);
                self.rebind(role, desired).inspect_err(|_| {
                    self.blocked.insert(role, (address.clone(), Instant::now()));
                })
            }
            bound => bound,
        }
    }

    /// Returns whether the listener's own socket may be what blocks an address. It is closed to find out, so that is tried seldom.
    fn blocks(&self, role: Role, address: &ListenAddress) -> bool {
        let is_blocked = |(blocked, at): &(ListenAddress, Instant)| {
            blocked == address && at.elapsed() < REBIND_INTERVAL
        };
        self.open.get(&role).is_some_and(|open| open.address.port == address.port)
            && !self.blocked.get(&role).is_some_and(is_blocked)
    }

    /// Returns true if the other listener no longer uses this address, or is to swap addresses with this one.
    fn can_take(&self, role: Role, address: &ListenAddress) -> bool {
        let open = |role| self.open.get(&role).map(|open| &open.address);
        let wanted = self.desired.get(&role.other()).map(|desired| &desired.listener.address);
        open(role.other()) != Some(address) || wanted.is_some() && wanted == open(role)
    }

    /// Closes the listener's socket and binds another address on the same port. Rebinds the old address if that fails.
    fn rebind(&mut self, role: Role, desired: &ListenerConfig) -> Result<TcpListener, BindError> {
        let Some(old) = self.open.remove(&role) else {
            return listen::bind(&desired.listener.address, desired.listener.flag);
        };
        let (address, server) = (old.address, old.server);
        // The server closes its clone of the socket asynchronously.
        drop(old.socket);
        let before = server.map(|server| server.desired);
        let bind_with_retries = |address: &ListenAddress| {
            let mut result = listen::bind(address, desired.listener.flag);
            for _ in 0..REBIND_ATTEMPTS {
                match &result {
                    Err(error) if error.source.kind() == io::ErrorKind::AddrInUse => {
                        std::thread::sleep(REBIND_DELAY);
                        result = listen::bind(address, desired.listener.flag);
                    }
                    _ => break,
                }
            }
            result
        };
        bind_with_retries(&desired.listener.address).inspect_err(|_| {
            let mut before = before.unwrap_or_else(|| desired.clone());
            before.listener.address = address;
            match bind_with_retries(&before.listener.address) {
                Ok(socket) => drop(self.serve_on(role, socket, &before)),
                Err(error) => {
                    tracing::error!(%error, "Cannot listen on the old address either, retrying")
                }
            }
        })
    }

    /// Serves `socket` as `role`.
    fn serve_on(
        &mut self,
        role: Role,
        socket: TcpListener,
        desired: &ListenerConfig,
    ) -> Result<(), BindError> {
        let address = &desired.listener.address;
        let flag = desired.listener.flag;
        let bind_error = |source| BindError { address: address.to_string(), flag, source };
        let accepting = socket.try_clone().map_err(bind_error)?;
        let bound = socket.local_addr().map_err(bind_error)?;
        let (trigger, shutdown) = oneshot::channel();
        let filter = self.filters.get(&role).filter(|_| desired.authorised);
        let web = desired.web.as_ref().map(|web| &*web.path);
        let router = (self.routers)(role, desired.gzip, web)
            .with_authorisation(filter.cloned())
            .with_web_config(desired.web.clone());
        let router = Arc::new(router);
        let task = self
            .servers
            .spawn(serve(accepting, router, desired.listener.limits, GRACE, role.share(), shutdown))
            .id();
        let server = Some(Server { desired: desired.clone(), task, _trigger: trigger });
        let old =
            self.open.insert(role, BoundListener { address: address.clone(), socket, server });
        if old.is_none_or(|old| old.address != *address) {
            log_address(self.config.name, role, bound);
        }
        Ok(())
    }
}

fn log_address(name: Name, role: Role, address: SocketAddr) {
    match (name, role) {
        (Name::StatsdExporter, _) => {
            tracing::info!(addr = %address, "Accepting Prometheus Requests");
        }
        (_, Role::Main) => tracing::info!(%address, "Started metrics server"),
        (_, Role::Telemetry) => tracing::info!(%address, "Started self metrics server"),
    }
}

/// Loads the web configuration, if there is one.
///
/// # Errors
///
/// Returns an error if the file cannot be read or is invalid.
pub fn web_config(config: &Config) -> Result<Option<Arc<WebConfig>>, WebConfigError> {
    let web = config.web_config.as_deref().map(WebConfig::load).transpose()?;
    if let Some(web) = &web {
        let (tls, http2) = (web.is_tls, web.is_http2);
        tracing::info!(file = %web.path.display(), tls, http2, "Using a web configuration");
    }
    Ok(web.map(Arc::new))
}

fn desired(config: &Config, web: Option<&Arc<WebConfig>>) -> BTreeMap<Role, ListenerConfig> {
    let desired = |listener: &Listener, gzip| {
        let (listener, web) = (listener.clone(), web.cloned());
        ListenerConfig { listener, gzip, web, authorised: config.auth_filter }
    };
    let main = desired(&config.main, config.gzip);
    // The telemetry listener always compresses if the client accepts gzip.
    let telemetry =
        config.telemetry.iter().map(|listener| (Role::Telemetry, desired(listener, true)));
    std::iter::once((Role::Main, main)).chain(telemetry).collect()
}
