//! The web configuration: TLS, users, headers, HTTP/2 and a limit of requests, from a file of the exporter toolkit's
//! format, for every listener of a process.
//!
//! The file and those that it names are looked at for every request and every handshake, so that what they say holds
//! at once; they are read when they are not what they were. A file that cannot be used answers requests with 500 and
//! handshakes with an alert until it can be. Whether there is TLS and HTTP/2, and the limit of requests, is settled at
//! the start. This knows the heads of requests and nothing of routes.
//!
//! | Part | For |
//! |---|---|
//! | [`file`](mod@file) | the keys and values |
//! | [`tls`], [`client_certificate`] | handshakes |
//! | [`users`] | passwords |
//! | [`rate_limit`] | how many requests |
//! | [`fresh`] | files as they are now |

mod client_certificate;
mod file;
mod fresh;
mod names;
mod rate_limit;
mod tls;
mod users;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use hyper::http::request::Parts;

use self::client_certificate::ClientAuth;
use self::file::{File, Rate};
use self::fresh::{Contents, Fresh};
use self::rate_limit::Limiter;
use self::users::{Checker, Verdict};
use super::response::{self, Response};
use crate::config_file::{self, Problem};

pub(crate) use self::tls::Settings;

/// The web configuration of a process.
pub struct WebConfig {
    path: PathBuf,
    tls: bool,
    http2: bool,
    rate: Rate,
    checker: Checker,
    file: Mutex<Fresh<Result<Arc<File>, String>>>,
    settings: Mutex<Fresh<Result<Arc<Settings>, String>>>,
}

/// A web configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("web configuration {path}: {reason}")]
pub struct WebConfigError {
    /// The path of the file.
    pub path: String,
    /// What is wrong, with the place.
    pub reason: String,
}

impl fmt::Debug for WebConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("WebConfig");
        debug.field("path", &self.path).field("tls", &self.tls).finish_non_exhaustive()
    }
}

impl WebConfig {
    /// Reads a file for the first time.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or used, or one that it names.
    pub fn load(path: &Path) -> Result<Self, WebConfigError> {
        Self::try_load(path)
            .map_err(|reason| WebConfigError { path: path.display().to_string(), reason })
    }

    fn try_load(path: &Path) -> Result<Self, String> {
        let mut config = Self {
            path: path.to_owned(),
            tls: false,
            http2: false,
            rate: Rate::default(),
            checker: Checker::new()?,
            file: Mutex::default(),
            settings: Mutex::default(),
        };
        let file = config.file_now()?;
        users::check(&file.users)?;
        if file.tls.is_wanted() {
            (config.tls, config.http2) = (true, file.http2);
            config.settings_now()?;
            tls::check_http2(&file.tls, file.http2)?;
        }
        config.rate = file.rate;
        Ok(config)
    }

    /// The files that one names with certificates and keys, as far as it can be read.
    pub fn files(path: &Path) -> Vec<PathBuf> {
        let directory = path.parent().unwrap_or(Path::new(""));
        let text = config_file::read(path).unwrap_or_default();
        let file = File::parse(&text, directory);
        let named = |file: File| tls::files(&file.tls).into_iter().map(Path::to_owned).collect();
        file.map(named).unwrap_or_default()
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether connections are to be encrypted.
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// Whether HTTP/2 is offered.
    pub fn is_http2(&self) -> bool {
        self.http2
    }

    /// What the next handshake needs.
    ///
    /// # Errors
    ///
    /// Why there can be none now.
    pub(crate) async fn settings(self: &Arc<Self>) -> Result<Arc<Settings>, String> {
        let this = Arc::clone(self);
        aside(move || this.settings_now()).await
    }

    async fn file(self: &Arc<Self>) -> Result<Arc<File>, String> {
        let this = Arc::clone(self);
        aside(move || this.file_now()).await
    }

    fn file_now(&self) -> Result<Arc<File>, String> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = self.path.parent().unwrap_or(Path::new(""));
        file.get(vec![self.path.clone()], |contents| {
            let file = parse(contents, &self.path, directory);
            self.note(file.as_ref().err());
            file
        })
    }

    fn settings_now(&self) -> Result<Arc<Settings>, String> {
        let file = self.file_now()?;
        if !file.tls.is_wanted() {
            return Err("the TLS section is gone; TLS is turned off at the start only".to_owned());
        }
        let mut settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        let named = tls::files(&file.tls).into_iter().map(Path::to_owned);
        let paths = std::iter::once(self.path.clone()).chain(named).collect();
        settings.get(paths, |contents| {
            let settings =
                tls::build(&file.tls, self.http2, |path| contents.of(path)).map(Arc::new);
            self.note(settings.as_ref().err());
            settings
        })
    }

    /// Says in the log what a changed file leads to.
    fn note(&self, error: Option<&String>) {
        if let Some(error) = error {
            tracing::error!(file = %self.path.display(), error, "Unable to use the web configuration");
        }
    }
}

fn parse(contents: &Contents, path: &Path, directory: &Path) -> Result<Arc<File>, String> {
    let bytes = contents.of(path)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line}: not UTF-8")
    })?;
    File::parse(&text, directory).map(Arc::new).map_err(|problems| Problem::list(&problems))
}

/// Runs what may wait for a disk where nobody else has to.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(error.to_string()))
}

/// The web configuration at one listener.
pub(crate) struct Guard {
    config: Arc<WebConfig>,
    limiter: Option<Limiter>,
}

/// The headers that an answer is to have.
pub(crate) struct Headers(Arc<File>);

impl Guard {
    /// A listener that begins now.
    pub(crate) fn new(config: Arc<WebConfig>) -> Self {
        let limiter = Limiter::new(config.rate, Instant::now());
        Self { config, limiter }
    }

    pub(crate) fn config(&self) -> &Arc<WebConfig> {
        &self.config
    }

    /// Whether a request may go on, and with which headers it is to be answered.
    ///
    /// # Errors
    ///
    /// The answer, if it may not.
    pub(crate) async fn admit(&self, head: &Parts) -> Result<Headers, Box<Response>> {
        let refuse =
            |status: u16, text: &str| Box::new(response::error(status, format!("{text}\n")));
        let Ok(file) = self.config.file().await else {
            return Err(refuse(500, "Internal Server Error"));
        };
        if self.limiter.as_ref().is_some_and(|limiter| !limiter.allows(Instant::now())) {
            return Err(refuse(429, "Too Many Requests"));
        }
        let headers = Headers(file);
        let users = &headers.0.users;
        if users.is_empty() {
            return Ok(headers);
        }
        let authorization = head.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        match self.config.checker.check(users, authorization).await {
            Verdict::Known => Ok(headers),
            Verdict::Unknown => {
                let refusal = *refuse(401, "Unauthorized");
                let basic = HeaderValue::from_static("Basic");
                let refusal = response::header(refusal, WWW_AUTHENTICATE, basic);
                Err(Box::new(headers.put(refusal)))
            }
            Verdict::Busy => {
                Err(Box::new(headers.put(*refuse(503, "Too many passwords are being checked"))))
            }
        }
    }
}

impl Headers {
    /// Whether the answer is for somebody who had to show who it is, by a password or a certificate.
    pub(crate) fn are_for_known(&self) -> bool {
        let certificates = ClientAuth::named(&self.0.tls.client_auth);
        !self.0.users.is_empty() || certificates == Ok(ClientAuth::RequireAndVerify)
    }

    /// Adds them to an answer, which keeps those that it has.
    pub(crate) fn put(&self, mut response: Response) -> Response {
        let add = |(name, value): &(HeaderName, HeaderValue)| {
            response.headers_mut().entry(name).or_insert_with(|| value.clone());
        };
        self.0.headers.iter().for_each(add);
        response
    }
}
