//! The recent log and the configuration of the process, for support archives. Both are without secrets. The paths are
//! below those of profiles, so the same clients may read them.
//!
//! | Path | Content |
//! |---|---|
//! | `/debug/pprof/log` | the most recent log lines |
//! | `/debug/pprof/configuration` | command line, configuration files, versions and limits as JSON |

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::report_queue::ReportQueue;
use super::response;
use super::router::{Methods, Router};
use crate::config_file;
use crate::status::Board;
use crate::telemetry::{REVISION, TOOLCHAIN, VERSION, log, process};
use crate::util::redaction;
use crate::util::serial_blocking::SerialBlocking;

/// The path of the recent log.
pub(crate) const LOG_PATH: &str = "/debug/pprof/log";

/// The path of the configuration.
pub(crate) const CONFIGURATION_PATH: &str = "/debug/pprof/configuration";

/// Returns the routes of a process with this web configuration file.
pub(crate) fn routes(board: &Arc<Board>, web_config: Option<PathBuf>) -> Router {
    let board = Arc::clone(board);
    // A file that cannot be read for long delays neither the log nor the pages of the status.
    let [of_log, of_configuration] = [(); 2].map(|()| SerialBlocking::default());
    let (log_queue, queue) = (ReportQueue::new(), ReportQueue::new());
    let log = move |call| {
        log_queue.clone().answer_blocking(call, of_log.clone(), || {
            response::nosniff(response::text(200, redaction::redact(&log::recent())))
        })
    };
    let configuration = move |call| {
        let (board, web_config) = (Arc::clone(&board), web_config.clone());
        queue.clone().answer_blocking(call, of_configuration.clone(), move || {
            response::json(200, configuration(&board, web_config).to_string())
        })
    };
    let router = Router::default().at_async(LOG_PATH, Methods::Read, log);
    router.at_async(CONFIGURATION_PATH, Methods::Read, configuration)
}

/// Describes the configuration; may block on files.
fn configuration(board: &Board, web_config: Option<PathBuf>) -> Value {
    let files = board.facts().files.into_iter().filter(|file| file.what != "kubeconfig");
    let files = files.map(|file| (file.what, PathBuf::from(file.path)));
    let files = files.chain(web_config.map(|path| ("web configuration", path)));
    let files = files.map(|(what, path)| {
        let (content, error) = match content(&path) {
            Ok(content) => (Some(content), None),
            Err(error) => (None, Some(error)),
        };
        json!({"what": what, "path": path, "content": content, "error": error})
    });
    json!({
        "version": VERSION,
        "revision": REVISION,
        "toolchain": TOOLCHAIN,
        "target": format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
        "arguments": redaction::redact_arguments(process::arguments().into_iter()),
        "files": files.collect::<Vec<Value>>(),
        "limits": {
            "memory_bytes": process::memory_limit(),
            "processors": std::thread::available_parallelism().map_or(0, usize::from),
            "process": std::fs::read_to_string("/proc/self/limits").unwrap_or_default(),
        },
    })
}

/// Returns the content of a configuration file without secrets: its text, or JSON if values were removed.
///
/// # Errors
/// The file cannot be read, or secrets in it cannot be found because it is not valid YAML.
fn content(path: &Path) -> Result<String, String> {
    // The content of a pipe is for the process alone.
    let read = config_file::reader::read_regular(path).map_err(|error| error.to_string())?;
    let text = config_file::text(read).map_err(|error| error.to_string())?;
    let rewritten = match serde_saphyr::from_str::<Value>(&text) {
        Ok(mut value) => match redaction::redact_value(&mut value) {
            true => format!("{value:#}"),
            false => text,
        },
        // The error may quote them.
        Err(_) if redaction::mentions_secrets(&text) => {
            let reason = "left out, because it is not valid YAML and may contain secrets";
            return Err(reason.to_owned());
        }
        _ => text,
    };
    Ok(redaction::redact(&rewritten))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_are_not_read() {
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        assert_eq!(content(Path::new(&path)), Err("not a regular file".to_owned()));
    }

    #[test]
    fn files_are_shown_without_secrets() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let shown = |text: &str| {
            std::fs::write(file.path(), text).expect("write");
            content(file.path())
        };
        let kept = "# comment\nmappings:\n- {match: a.*, name: n}\n";
        assert_eq!(shown(kept).as_deref(), Ok(kept));
        assert_eq!(shown("mappings: [\n").as_deref(), Ok("mappings: [\n"));
        let users = shown("basic_auth_users:\n  me: plain pl4nted\n  you: |\n    pl4nted\n")
            .expect("shown");
        assert!(users.contains("\"me\": \"[removed]\"") && !users.contains("pl4nted"), "{users}");
        let broken = shown("basic_auth_users: [\n  me: pl4nted\n").expect_err("left out");
        assert!(broken.contains("may contain secrets") && !broken.contains("pl4nted"), "{broken}");
    }
}
