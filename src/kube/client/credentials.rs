//! Who we are in a request: a token or a password, as fresh as its source.
//!
//! What a kubeconfig or a service account says flows in; for each request an [`Authorization`] flows out.
//! When the server refuses one, [`Credentials::refused`] tells whether there is another to try.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderValue;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Mutex, MutexGuard};

use super::exec::{Plugin, Printed};
use super::files::Watched;
use super::tls::Identity;

/// How long before its end a printed credential is replaced.
const EARLY: SignedDuration = SignedDuration::from_secs(10);
/// A program is not run again sooner when it fails or when the server refuses what it printed.
const AGAIN: Duration = Duration::from_secs(5);

/// Where credentials come from.
pub(crate) enum Source {
    /// There are none.
    Nothing,
    /// What does not change.
    Fixed(HeaderValue),
    /// A file with a token.
    File {
        /// The file.
        file: Watched,
        /// The token that stands beside the file's name, used until the file is read.
        first: Option<HeaderValue>,
    },
    /// A program.
    Program(Plugin),
}

/// The credentials of one user; for all requests.
pub(crate) struct Credentials(Mutex<State>);

struct State {
    source: Source,
    now: Authorization,
    expires: Option<Timestamp>,
    /// When the program last ran, and what went wrong.
    ran: Option<(Instant, Result<(), String>)>,
    /// Whether the file's trouble was logged.
    complained: bool,
}

/// What goes with a request.
#[derive(Clone, Default)]
pub(crate) struct Authorization {
    /// The header `Authorization`.
    pub header: Option<HeaderValue>,
    /// Certificate and key for the connection, from a program.
    pub identity: Option<Arc<Identity>>,
    /// How many others were there before.
    serial: u64,
}

impl Credentials {
    /// Credentials from this source.
    ///
    /// # Errors
    /// The file has no token.
    pub(crate) fn new(source: Source) -> Result<Self, String> {
        let header = match &source {
            Source::Nothing | Source::Program(_) => None,
            Source::Fixed(header) => Some(header.clone()),
            Source::File { file, first } => {
                let read = token(file);
                Some(match first {
                    Some(first) => read.unwrap_or_else(|_| first.clone()),
                    None => read?,
                })
            }
        };
        let now = Authorization { header, ..Authorization::default() };
        let state = State { source, now, expires: None, ran: None, complained: false };
        Ok(Self(Mutex::new(state)))
    }

    /// What to send now.
    ///
    /// # Errors
    /// The program prints nothing that can be sent.
    pub(crate) async fn current(&self) -> Result<Authorization, String> {
        let mut state = self.state().await;
        match &state.source {
            Source::Nothing | Source::Fixed(_) => {}
            Source::File { .. } => state.reread(false),
            Source::Program(_) => {
                let failed = matches!(state.ran, Some((_, Err(_))));
                if state.ran.is_none() || failed || state.expires.is_some_and(is_over) {
                    state.run().await?;
                }
            }
        }
        Ok(state.now.clone())
    }

    /// Looks for others, for the server has refused these. Whether there are.
    pub(crate) async fn refused(&self, refused: &Authorization) -> bool {
        let mut state = self.state().await;
        // Others may have been here before.
        if state.now.serial == refused.serial {
            match &state.source {
                Source::Nothing | Source::Fixed(_) => {}
                Source::File { .. } => state.reread(true),
                Source::Program(_) if state.ran_just_now() => {}
                Source::Program(_) => {
                    if let Err(error) = state.run().await {
                        tracing::warn!(error, "the API server refuses the credentials");
                    }
                }
            }
        }
        state.now.serial != refused.serial
    }

    async fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().await
    }
}

impl State {
    /// Reads the token again; one that cannot be read leaves the last one.
    fn reread(&mut self, now: bool) {
        let Source::File { file, .. } = &mut self.source else {
            return;
        };
        let path = file.path().display().to_string();
        let refreshed = file.refresh(now).map_err(|error| format!("token file {path}: {error}"));
        match refreshed.and_then(|_| token(file)) {
            Ok(header) => {
                self.complained = false;
                self.set(Some(header), None);
            }
            Err(error) if self.complained => tracing::debug!(error, "going on with the last token"),
            Err(error) => {
                self.complained = true;
                tracing::warn!(error, "going on with the last token");
            }
        }
    }

    fn ran_just_now(&self) -> bool {
        self.ran.as_ref().is_some_and(|(ran, _)| ran.elapsed() < AGAIN)
    }

    /// Runs the program. Many requests may ask for it at once: one failure is the answer to all.
    async fn run(&mut self) -> Result<(), String> {
        if let Some((_, failed @ Err(_))) = &self.ran
            && self.ran_just_now()
        {
            return failed.clone();
        }
        let Source::Program(plugin) = &self.source else {
            return Ok(());
        };
        let printed = plugin.run().await;
        let result = printed.and_then(|Printed { token, identity, expires }| {
            let header = token.as_deref().map(bearer).transpose()?;
            self.expires = expires;
            self.set(header, identity);
            Ok(())
        });
        self.ran = Some((Instant::now(), result.clone()));
        result
    }

    fn set(&mut self, header: Option<HeaderValue>, identity: Option<Arc<Identity>>) {
        if self.now.header != header || self.now.identity != identity {
            self.now = Authorization { header, identity, serial: self.now.serial + 1 };
        }
    }
}

/// Whether a credential that ends then has to be replaced.
fn is_over(expires: Timestamp) -> bool {
    expires.duration_since(Timestamp::now()) <= EARLY
}

/// The header for the token in a file.
fn token(file: &Watched) -> Result<HeaderValue, String> {
    let fault = |reason: &str| format!("token file {}: {reason}", file.path().display());
    let text = std::str::from_utf8(file.content()).map_err(|_| fault("not UTF-8"))?.trim();
    if text.is_empty() {
        return Err(fault("it is empty"));
    }
    bearer(text).map_err(|error| fault(&error))
}

/// The header for a token.
///
/// # Errors
/// It cannot stand in a header.
pub(crate) fn bearer(token: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| "the token has characters that cannot be sent".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::super::kubeconfig::{Cluster, ExecConfig};
    use super::*;

    async fn sent(credentials: &Credentials) -> (Authorization, String) {
        let now = credentials.current().await.unwrap_or_else(|error| panic!("{error}"));
        let text = now.header.as_ref().and_then(|header| header.to_str().ok());
        let text = text.unwrap_or_default().to_owned();
        (now, text)
    }

    #[tokio::test]
    async fn token_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("token");
        let open = || {
            let file = Watched::read(&path).expect("readable");
            Credentials::new(Source::File { file, first: None })
        };
        std::fs::write(&path, " \n").expect("written");
        assert!(open().err().is_some_and(|error| error.contains("it is empty")));
        std::fs::write(&path, "a\u{7f}b").expect("written");
        assert!(open().err().is_some_and(|error| error.contains("cannot be sent")));
        std::fs::write(&path, " one\r\n").expect("written");
        let credentials = open().unwrap_or_else(|error| panic!("{error}"));
        let (one, text) = sent(&credentials).await;
        assert_eq!(text, "Bearer one");
        assert!(!credentials.refused(&one).await);
        std::fs::write(&path, "two").expect("written");
        assert!(credentials.refused(&one).await);
        let (two, text) = sent(&credentials).await;
        assert_eq!(text, "Bearer two");
        // Who was refused with the first has the second to try, whoever found it.
        assert!(credentials.refused(&one).await);
        assert!(!credentials.refused(&two).await);
        // A file that is being written leaves what was there.
        std::fs::write(&path, "").expect("written");
        assert_eq!(sent(&credentials).await.1, "Bearer two");
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(sent(&credentials).await.1, "Bearer two");
        std::fs::write(&path, "three").expect("written");
        assert_eq!(sent(&credentials).await.1, "Bearer three");
    }

    #[tokio::test]
    async fn programs_run_again_when_their_time_is_over() {
        let dir = tempfile::tempdir().expect("a directory");
        let runs = dir.path().join("runs");
        let program = |expires: &str| {
            let script = format!(
                "echo >> {runs}; printf '{{\"apiVersion\":\"client.authentication.k8s.io/v1beta1\",\
                 \"status\":{{\"token\":\"t%s\",\"expirationTimestamp\":\"{expires}\"}}}}' \
                 $(wc -l < {runs})",
                runs = runs.display()
            );
            let config = ExecConfig {
                command: "/bin/sh".to_owned(),
                args: Some(vec!["-c".to_owned(), script]),
                api_version: Some("client.authentication.k8s.io/v1beta1".to_owned()),
                ..ExecConfig::default()
            };
            let plugin = Plugin::new(config, &Cluster::default());
            Credentials::new(Source::Program(plugin.unwrap_or_else(|error| panic!("{error}"))))
                .unwrap_or_else(|error| panic!("{error}"))
        };
        let over = program("2001-01-01T00:00:00Z");
        assert_eq!(sent(&over).await.1, "Bearer t1");
        let (second, text) = sent(&over).await;
        assert_eq!(text, "Bearer t2");
        // Refused at once, it is not asked a third time.
        assert!(!over.refused(&second).await);
        let lasting = program("2100-01-01T00:00:00Z");
        assert_eq!(sent(&lasting).await.1, "Bearer t3");
        assert_eq!(sent(&lasting).await.1, "Bearer t3");
    }
}
