//! The two listeners of a process that follows its configuration while it runs.
//!
//! A listener moves only when its address changes, and only when the new one can be had: until then the
//! old one goes on and the new one is tried again and again. Other limits or another router (compression)
//! are served on the same socket, which never closes; answers in flight end as they began. The paths are
//! those that [`routes`](crate::server::routes) has; nothing here knows them.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::process::GRACE;
use crate::cli::config::{Config, Listener};
use crate::server::authorisation::{Authorisation, Reviews};
use crate::server::listen::{self, BindError, ListenAddress};
use crate::server::router::Router;
use crate::server::serve::serve;
use crate::server::shutdown::{self, Trigger};
use crate::server::web_config::{WebConfig, WebConfigError};

/// The first pause before an address that could not be had is tried again, which doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// What that pause grows to.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// How often, and at which distance, an address is tried that one of our own sockets has just left.
const LEAVING: (u32, Duration) = (200, Duration::from_millis(5));

/// What a listener is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Metrics and health.
    Main,
    /// Own metrics and profiles.
    Telemetry,
}

/// Makes the paths of a listener; the flag says whether bodies may be compressed.
pub type Routers = Box<dyn Fn(Role, bool) -> Router + Send + Sync>;

/// Says in the log where a listener is.
pub type Announce = fn(Role, SocketAddr);

/// How a listener is to be.
#[derive(Clone, Debug)]
struct Wanted {
    listener: Listener,
    gzip: bool,
    web: Option<Arc<WebConfig>>,
    authorised: bool,
}

/// Why the listeners of a process cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// An address cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Callers are to be authorised, and nobody can be asked about them.
    #[error(
        "--auth-filter asks an API server about callers, and none is configured; set --kubeconfig or --apiserver, or remove the flag"
    )]
    NobodyToAsk,
}

/// A listener at work. Dropping it lets the answers in flight end and closes the rest.
struct Open {
    address: ListenAddress,
    /// Kept beside the one that accepts, so that the next server can go on with it.
    socket: TcpListener,
    /// The server on it, with what it was started with; `None` when it has ended by itself.
    server: Option<Server>,
}

struct Server {
    wanted: Wanted,
    task: Id,
    _trigger: Trigger,
}

/// The listeners of a process.
pub struct Listeners {
    routers: Routers,
    announce: Announce,
    /// The configuration that is wanted; what is made of it follows.
    config: Config,
    web: Option<Arc<WebConfig>>,
    /// Each listener has a memory of its own; none without an API server.
    filters: BTreeMap<Role, Arc<Authorisation>>,
    wanted: BTreeMap<Role, Wanted>,
    open: BTreeMap<Role, Open>,
    servers: JoinSet<io::Result<()>>,
    failures: u32,
    retry: Option<Instant>,
}

impl Open {
    fn is(&self, wanted: &Wanted) -> bool {
        self.address == wanted.listener.address && self.serves(wanted)
    }

    fn serves(&self, wanted: &Wanted) -> bool {
        let limits = wanted.listener.limits;
        let same = |server: &Server| {
            server.wanted.listener.limits == limits
                && server.wanted.gzip == wanted.gzip
                && server.wanted.authorised == wanted.authorised
                && same_web(&server.wanted.web, &wanted.web)
        };
        self.server.as_ref().is_some_and(same)
    }
}

impl Listeners {
    /// Binds all listeners of a configuration and begins to serve. `web` is its [web configuration](web_config).
    ///
    /// # Errors
    ///
    /// The first address that cannot be had.
    pub fn start(
        config: &Config,
        web: Option<Arc<WebConfig>>,
        routers: Routers,
        announce: Announce,
        reviews: Option<Arc<dyn Reviews>>,
    ) -> Result<Self, ListenError> {
        if config.auth_filter && reviews.is_none() {
            return Err(ListenError::NobodyToAsk);
        }
        let filter = |role| {
            let reviews = reviews.clone()?;
            Some((role, Arc::new(Authorisation::new(reviews))))
        };
        let filters = [Role::Main, Role::Telemetry].into_iter().filter_map(filter).collect();
        let mut listeners = Self {
            routers,
            announce,
            wanted: wanted(config, web.as_ref()),
            config: config.clone(),
            web,
            filters,
            open: BTreeMap::new(),
            servers: JoinSet::new(),
            failures: 0,
            retry: None,
        };
        for (role, wanted) in listeners.wanted.clone() {
            let socket = listen::bind(&wanted.listener.address, wanted.listener.flag)?;
            listeners.put(role, socket, &wanted)?;
        }
        Ok(listeners)
    }

    /// Listens as this configuration says, as far as that can be had now.
    pub fn change(&mut self, config: &Config) {
        self.config = config.clone();
        self.failures = 0;
        self.adjust();
    }

    /// Whether all listeners are as the latest configuration says.
    pub fn is_in_force(&self) -> bool {
        self.has_web()
            && (!self.config.auth_filter || !self.filters.is_empty())
            && self
                .wanted
                .iter()
                .all(|(role, wanted)| self.open.get(role).is_some_and(|o| o.is(wanted)))
    }

    /// Looks after the listeners: completes when something was tried again. It may be dropped at any time.
    pub async fn attend(&mut self) {
        loop {
            let retry = self.retry;
            let time = async {
                match retry {
                    Some(instant) => sleep_until(instant).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = time => {
                    self.adjust();
                    return;
                }
                Some(ended) = self.servers.join_next_with_id() => {
                    let (id, error) = match ended {
                        Ok((id, Ok(()))) => (id, None),
                        Ok((id, Err(error))) => (id, Some(error.to_string())),
                        Err(error) => (error.id(), Some(error.to_string())),
                    };
                    self.ended(id, error);
                }
            }
        }
    }

    /// Ends all listeners; completes when the answers in flight are sent, or their time is over.
    pub async fn stop(&mut self) {
        self.open.clear();
        while self.servers.join_next().await.is_some() {}
    }

    /// A server that nobody has told to end is started again after a pause.
    fn ended(&mut self, id: Id, error: Option<String>) {
        let task = |open: &Open| open.server.as_ref().map(|server| server.task);
        let open = self.open.values_mut().find(|open| task(open) == Some(id));
        match (open, error) {
            (Some(open), error) => {
                let error = error.unwrap_or_else(|| "it came to an end".to_owned());
                tracing::error!(address = %open.address, error, "a listener failed, starting it again");
                open.server = None;
                self.try_later();
            }
            (None, Some(error)) => tracing::warn!(error, "a listener that has moved failed"),
            (None, None) => {}
        }
    }

    fn try_later(&mut self) {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(LONGEST_PAUSE);
        self.failures += 1;
        self.retry = Some(Instant::now() + pause);
    }

    /// Whether the web configuration is the one that is wanted.
    fn has_web(&self) -> bool {
        self.web.as_ref().map(|web| web.path()) == self.config.web_config.as_deref()
    }

    /// Makes what can be made now as it is wanted.
    fn adjust(&mut self) {
        self.retry = None;
        let mut left = Vec::new();
        let mut failed = false;
        if !self.has_web() {
            match web_config(&self.config) {
                Ok(web) => self.web = web,
                Err(error) => {
                    tracing::error!(%error, "the old web configuration stays until the new one can be used");
                    failed = true;
                }
            }
        }
        if self.config.auth_filter && self.filters.is_empty() {
            tracing::error!(error = %ListenError::NobodyToAsk, "the listeners stay as they are");
            return;
        }
        self.wanted = wanted(&self.config, self.web.as_ref());
        if self.are_crossed() {
            // Each has the address of the other.
            let mut sockets: Vec<(ListenAddress, TcpListener)> = std::mem::take(&mut self.open)
                .into_values()
                .rev()
                .map(|open| (open.address, open.socket))
                .collect();
            for (role, wanted) in self.wanted.clone() {
                let at =
                    sockets.iter().position(|(address, _)| *address == wanted.listener.address);
                let Some((_, socket)) = at.map(|at| sockets.swap_remove(at)) else { continue };
                failed |= self.put(role, socket, &wanted).is_err();
            }
        }
        for role in self.turns() {
            let Some(wanted) = self.wanted.get(&role).cloned() else { continue };
            if self.open.get(&role).is_some_and(|open| open.is(&wanted)) {
                continue;
            }
            if let Err(error) = self.make(role, &wanted, &mut left) {
                tracing::error!(%error, "the listener stays where it is until its new address can be had");
                failed = true;
            }
        }
        if failed {
            self.try_later();
        }
    }

    /// Whether each of the two listeners is to be where the other is.
    fn are_crossed(&self) -> bool {
        let pair = |role| Some((&self.open.get(&role)?.address, &self.wanted.get(&role)?.listener));
        match (pair(Role::Main), pair(Role::Telemetry)) {
            (Some((main, to)), Some((telemetry, and_to))) => {
                main != telemetry && *main == and_to.address && *telemetry == to.address
            }
            _ => false,
        }
    }

    /// The roles, one that is to be where another is behind that one.
    fn turns(&self) -> [Role; 2] {
        let main = self.wanted.get(&Role::Main).map(|wanted| &wanted.listener.address);
        let telemetry = self.open.get(&Role::Telemetry).map(|open| &open.address);
        if main.is_some() && main == telemetry {
            [Role::Telemetry, Role::Main]
        } else {
            [Role::Main, Role::Telemetry]
        }
    }

    /// Makes one listener as it is wanted; an address that it leaves goes to `left`.
    fn make(&mut self, role: Role, wanted: &Wanted, left: &mut Vec<Open>) -> Result<(), BindError> {
        let address = &wanted.listener.address;
        let fault =
            |source| BindError { address: address.to_string(), flag: wanted.listener.flag, source };
        if let Some(open) = self.open.get(&role)
            && open.address == *address
        {
            let socket = open.socket.try_clone().map_err(fault)?;
            return self.put(role, socket, wanted).map(drop);
        }
        let socket = match left.iter().position(|open| open.address == *address) {
            Some(at) => left.swap_remove(at).socket,
            None => match listen::bind(address, wanted.listener.flag) {
                Err(error) if self.stands_in_the_way(role, address, &error) => {
                    self.leave_for(role, wanted)?
                }
                bound => bound?,
            },
        };
        let old = self.put(role, socket, wanted)?;
        left.extend(old);
        Ok(())
    }

    /// Whether it is the listener's own socket that has the port, on another address of the host.
    fn stands_in_the_way(&self, role: Role, address: &ListenAddress, error: &BindError) -> bool {
        let own = self.open.get(&role).is_some_and(|open| open.address.port == address.port);
        own && error.source.kind() == io::ErrorKind::AddrInUse
    }

    /// Gives up the listener's socket for one on the same port; when that cannot be had after all, it
    /// listens as before.
    fn leave_for(&mut self, role: Role, wanted: &Wanted) -> Result<TcpListener, BindError> {
        let Some(old) = self.open.remove(&role) else {
            return listen::bind(&wanted.listener.address, wanted.listener.flag);
        };
        let (address, server) = (old.address, old.server);
        // The server closes its own half when it is told to end, which takes a moment.
        drop(old.socket);
        let before = server.map(|server| server.wanted);
        let patient = |address: &ListenAddress| {
            let mut result = listen::bind(address, wanted.listener.flag);
            for _ in 0..LEAVING.0 {
                match &result {
                    Err(error) if error.source.kind() == io::ErrorKind::AddrInUse => {
                        std::thread::sleep(LEAVING.1);
                        result = listen::bind(address, wanted.listener.flag);
                    }
                    _ => break,
                }
            }
            result
        };
        patient(&wanted.listener.address).inspect_err(|_| {
            let mut before = before.unwrap_or_else(|| wanted.clone());
            before.listener.address = address;
            match patient(&before.listener.address) {
                Ok(socket) => drop(self.put(role, socket, &before)),
                Err(error) => tracing::error!(%error, "the listener is away until it can be had"),
            }
        })
    }

    /// Serves a socket; what served the role before is returned, or ends when it was on the same socket.
    fn put(
        &mut self,
        role: Role,
        socket: TcpListener,
        wanted: &Wanted,
    ) -> Result<Option<Open>, BindError> {
        let address = &wanted.listener.address;
        let flag = wanted.listener.flag;
        let fault = |source| BindError { address: address.to_string(), flag, source };
        let accepting = socket.try_clone().map_err(fault)?;
        let bound = socket.local_addr().map_err(fault)?;
        let (trigger, shutdown) = shutdown::switch();
        let filter = self.filters.get(&role).filter(|_| wanted.authorised);
        let router = (self.routers)(role, wanted.gzip)
            .for_the_authorised(filter.cloned())
            .behind(wanted.web.clone());
        let router = Arc::new(router);
        let task = self
            .servers
            .spawn(serve(accepting, router, wanted.listener.limits, GRACE, shutdown))
            .id();
        let server = Some(Server { wanted: wanted.clone(), task, _trigger: trigger });
        let old = self.open.insert(role, Open { address: address.clone(), socket, server });
        let stays = old.as_ref().is_some_and(|old| old.address == *address);
        if !stays {
            (self.announce)(role, bound);
        }
        Ok(old.filter(|_| !stays))
    }
}

/// Reads the web configuration, if there is one.
///
/// # Errors
///
/// What is wrong with it.
pub fn web_config(config: &Config) -> Result<Option<Arc<WebConfig>>, WebConfigError> {
    let web = config.web_config.as_deref().map(WebConfig::load).transpose()?;
    if let Some(web) = &web {
        let (tls, http2) = (web.is_tls(), web.is_http2());
        tracing::info!(file = %web.path().display(), tls, http2, "Using a web configuration");
    }
    Ok(web.map(Arc::new))
}

fn same_web(one: &Option<Arc<WebConfig>>, other: &Option<Arc<WebConfig>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

fn wanted(config: &Config, web: Option<&Arc<WebConfig>>) -> BTreeMap<Role, Wanted> {
    let wanted = |listener: &Listener, gzip| {
        let (listener, web) = (listener.clone(), web.cloned());
        Wanted { listener, gzip, web, authorised: config.auth_filter }
    };
    let main = wanted(&config.main, config.gzip);
    // Always by the wishes of the client there.
    let telemetry =
        config.telemetry.iter().map(|listener| (Role::Telemetry, wanted(listener, true)));
    std::iter::once((Role::Main, main)).chain(telemetry).collect()
}
