//! The web configuration: TLS, users, headers, HTTP/2 and a rate limit for all listeners of a process, from a file in
//! the exporter toolkit's format.
//!
//! The file and those that it refers to are checked on every request and handshake, so that changes apply at once; they
//! are read again only when they have changed. While the file is invalid, requests are answered with 500 and handshakes
//! with an alert. TLS, HTTP/2 and the rate limit are fixed at start-up. This module only knows the heads of requests,
//! not the routes.
//!
//! | Module | Purpose |
//! |---|---|
//! | [`file`](mod@file) | keys and values |
//! | [`tls`], [`client_certificate`] | handshakes |
//! | [`users`] | passwords |
//! | [`rate_limit`] | rate limit |
//! | [`file_cache`] | reloading changed files |

mod client_certificate;
mod file;
mod file_cache;
mod rate_limit;
mod tls;
mod unusable;
mod users;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use hyper::http::request::Parts;

use self::file::{File, Rate};
use self::file_cache::{Contents, FileCache};
use self::rate_limit::Limiter;
use self::unusable::Unusable;
use self::users::{Checker, Verdict};
use super::connection::Peer;
use super::response::{self, Response};
use crate::config_file::{self, FileError, Problem};
use crate::util::lock::Lock;

pub(crate) use self::tls::Settings;

/// The web configuration of a process.
pub struct WebConfig {
    /// The path of the file.
    pub path: PathBuf,
    /// True if connections are encrypted.
    pub is_tls: bool,
    /// True if HTTP/2 is offered.
    pub is_http2: bool,
    /// True if there were users when the file was first read.
    pub(crate) had_users: bool,
    rate: Rate,
    checker: Checker,
    file: Lock<FileCache<Result<Arc<File>, Unusable>>>,
    settings: Lock<FileCache<Result<Arc<Settings>, Unusable>>>,
}

/// An unusable web configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("web configuration {path}: {reason}")]
pub struct WebConfigError {
    /// The path of the file.
    pub path: String,
    /// The error with its position.
    pub reason: String,
}

impl fmt::Debug for WebConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("WebConfig");
        debug.field("path", &self.path).field("is_tls", &self.is_tls).finish_non_exhaustive()
    }
}

impl WebConfig {
    /// Loads a file at start-up.
    ///
    /// # Errors
    ///
    /// When the file, or one it refers to, is unreadable or invalid.
    pub fn load(path: &Path) -> Result<Self, WebConfigError> {
        Self::try_load(path).map_err(|error| WebConfigError {
            path: path.display().to_string(),
            reason: error.to_string(),
        })
    }

    fn try_load(path: &Path) -> Result<Self, Unusable> {
        let mut config = Self {
            path: path.to_owned(),
            is_tls: false,
            is_http2: false,
            had_users: false,
            rate: Rate::default(),
            checker: Checker::new()?,
            file: Lock::new(FileCache(None)),
            settings: Lock::new(FileCache(None)),
        };
        let file = config.file_now()?;
        users::check(&file.users)?;
        if file.tls.is_wanted() {
            (config.is_tls, config.is_http2) = (true, file.http2);
            config.settings_now()?;
            tls::check_http2(&file.tls, file.http2)?;
        }
        config.had_users = !file.users.is_empty();
        config.rate = file.rate;
        Ok(config)
    }

    /// Returns the problems of the syntax and the values of a file.
    ///
    /// # Errors
    ///
    /// When the file is unreadable.
    pub fn problems(path: &Path) -> Result<Vec<Problem>, FileError> {
        let text = config_file::read(path)?;
        let directory = path.parent().unwrap_or(Path::new(""));
        Ok(File::parse(&text, directory).err().unwrap_or_default())
    }

    /// Returns whether a file has this key at its top level.
    pub fn is_key(name: &str) -> bool {
        file::is_section(name)
    }

    /// Returns the certificate and key files that a readable configuration refers to.
    pub fn files(path: &Path) -> Vec<PathBuf> {
        let directory = path.parent().unwrap_or(Path::new(""));
        let text = config_file::read(path).unwrap_or_default();
        let file = File::parse(&text, directory);
        let named = |file: File| tls::files(&file.tls).into_iter().map(Path::to_owned).collect();
        file.map(named).unwrap_or_default()
    }

    /// Returns the settings of the next handshake.
    ///
    /// # Errors
    ///
    /// The reason why there are none at present.
    pub(crate) async fn settings(self: &Arc<Self>) -> Result<Arc<Settings>, Unusable> {
        let this = Arc::clone(self);
        aside(move || this.settings_now()).await
    }

    async fn file(self: &Arc<Self>) -> Result<Arc<File>, Unusable> {
        let this = Arc::clone(self);
        aside(move || this.file_now()).await
    }

    fn file_now(&self) -> Result<Arc<File>, Unusable> {
        let mut file = self.file.lock();
        file.get(vec![self.path.clone()], |contents| {
            let file = parse(contents, &self.path);
            self.note(file.as_ref().err());
            file
        })
    }

    fn settings_now(&self) -> Result<Arc<Settings>, Unusable> {
        let file = self.file_now()?;
        if !file.tls.is_wanted() {
            return Err("the TLS section was removed; disabling TLS requires a restart".into());
        }
        let mut settings = self.settings.lock();
        let named = tls::files(&file.tls).into_iter().map(Path::to_owned);
        let paths = std::iter::once(self.path.clone()).chain(named).collect();
        settings.get(paths, |contents| {
            // The file may have changed since. If it names other files, the next handshake reads them.
            let changed = parse(contents, &self.path)?;
            let is_complete = tls::files(&changed.tls) == tls::files(&file.tls);
            let tls = if is_complete { &changed.tls } else { &file.tls };
            let settings = tls::build(tls, self.is_http2, |path| contents.of(path)).map(Arc::new);
            self.note(settings.as_ref().err());
            settings
        })
    }

    /// Logs the effect of a changed file.
    fn note(&self, error: Option<&Unusable>) {
        if let Some(error) = error {
            tracing::error!(file = %self.path.display(), %error, "Unable to use the web configuration");
        }
    }
}

fn parse(contents: &Contents, path: &Path) -> Result<Arc<File>, Unusable> {
    let directory = path.parent().unwrap_or(Path::new(""));
    let bytes = contents.of(path)?;
    let text = config_file::text(bytes).map_err(|error| error.to_string())?;
    let file = File::parse(&text, directory).map_err(|problems| Problem::list(&problems))?;
    Ok(Arc::new(file))
}

/// Runs blocking work on the blocking pool.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Unusable> + Send + 'static,
) -> Result<T, Unusable> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(error.to_string().into()))
}

/// The web configuration at one listener.
pub(crate) struct Guard {
    pub(crate) config: Arc<WebConfig>,
    limiter: Option<Limiter>,
}

/// A request that may proceed.
pub(crate) struct Admitted {
    file: Arc<File>,
    /// True if users are configured, so that the request has presented a valid password.
    pub(crate) has_password: bool,
}

impl Guard {
    /// Creates the guard of a listener.
    pub(crate) fn new(config: Arc<WebConfig>) -> Self {
        let limiter = Limiter::new(config.rate, Instant::now());
        Self { config, limiter }
    }

    /// Returns whether users are configured, or an invalid file may contain some.
    pub(crate) async fn has_users(&self) -> bool {
        self.config.file().await.map_or(true, |file| !file.users.is_empty())
    }

    /// Decides whether a request may proceed.
    ///
    /// # Errors
    ///
    /// The response to a request that may not.
    pub(crate) async fn admit(&self, head: &Parts) -> Result<Admitted, Box<Response>> {
        let refuse =
            |status: u16, text: &str| Box::new(response::error(status, format!("{text}\n")));
        let Ok(file) = self.config.file().await else {
            return Err(refuse(500, "Internal Server Error"));
        };
        if self.limiter.as_ref().is_some_and(|limiter| !limiter.allows(Instant::now())) {
            return Err(refuse(429, "Too Many Requests"));
        }
        let admitted = Admitted { has_password: !file.users.is_empty(), file };
        if !admitted.has_password {
            return Ok(admitted);
        }
        let authorization = head.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        let client = head.extensions.get::<Peer>().and_then(Peer::address);
        let refusal =
            match self.config.checker.check(&admitted.file.users, authorization, client).await {
                Verdict::Known => return Ok(admitted),
                Verdict::Unknown => {
                    let basic = HeaderValue::from_static("Basic");
                    response::header(*refuse(401, "Unauthorized"), WWW_AUTHENTICATE, basic)
                }
                Verdict::Busy => *refuse(503, "Too many passwords are being checked"),
            };
        Err(Box::new(admitted.put_headers(refusal)))
    }
}

impl Admitted {
    /// Adds the configured headers to a response, which keeps its own.
    pub(crate) fn put_headers(&self, mut response: Response) -> Response {
        let add = |(name, value): &(HeaderName, HeaderValue)| {
            response.headers_mut().entry(name).or_insert_with(|| value.clone());
        };
        self.file.headers.iter().for_each(add);
        response
    }
}
