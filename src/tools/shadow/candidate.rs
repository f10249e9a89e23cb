//! The kstatd that is compared: a child process with the flags of the original, on loopback ports.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::cli::config::{self, Load};
use crate::cli::kube_flags::{self, KubeArgs};
use crate::cli::statsd_flags::{self, StatsdArgs};
use crate::cli::usage_error::UsageError;
use crate::cli::{kingpin, pflag};
use crate::status::words::printable;
use crate::tools::Result;

/// The number of log lines that explain a failure.
const LOG_LINES: usize = 10;

/// The flags of a candidate for kube-state-metrics.
const OF_CANDIDATE: [&str; 6] = [
    "--host=127.0.0.1",
    "--port=0",
    "--telemetry-host=127.0.0.1",
    "--telemetry-port=0",
    "--auth-filter=false",
    "--tls-config=",
];

/// The original that is compared.
#[derive(Clone, Debug)]
pub(crate) enum Original {
    KubeStateMetrics(Box<KubeArgs>),
    StatsdExporter(Box<StatsdArgs>),
}

/// The command line of the original, parsed as the original does.
#[derive(Clone, Debug)]
pub(crate) struct CommandLine {
    pub original: Original,
    flags: Vec<String>,
}

impl CommandLine {
    /// Parses flags, with or without a program name in front.
    ///
    /// # Errors
    /// The program is unknown, or it rejects the flags.
    pub(crate) fn parse(words: &[String]) -> Result<Self> {
        let named = words.first().filter(|word| !word.starts_with('-'));
        let path = named.map_or("kube-state-metrics", String::as_str);
        let program = path.rsplit('/').next().unwrap_or(path);
        let flags = &words[usize::from(named.is_some())..];
        let fault = |error: UsageError| format!("flags of {program}: {error}");
        let original = match program {
            "kube-state-metrics" => {
                let mut args = KubeArgs::default();
                let rest = pflag::parse(&kube_flags::all(), &mut args, flags).map_err(fault)?;
                if let Some(word) = rest.first() {
                    return Err(fault(format!("unexpected argument {word:?}").into()).into());
                }
                merge_options_file(&mut args).map_err(|error| fault(error.into()))?;
                Original::KubeStateMetrics(Box::new(args))
            }
            "statsd_exporter" => {
                let mut args = StatsdArgs::default();
                let request = kingpin::parse(statsd_flags::FLAGS, &mut args, flags);
                match request.map_err(fault)? {
                    kingpin::Request::Run => {}
                    _ => return Err(fault("one of them only prints something".into()).into()),
                }
                statsd_flags::check(&args).map_err(fault)?;
                Original::StatsdExporter(Box::new(args))
            }
            other => {
                return Err(format!(
                    "{other:?} is not an original: -- must be followed by flags, kube-state-metrics or statsd_exporter"
                ).into());
            }
        };
        Ok(Self { original, flags: flags.to_vec() })
    }

    /// Returns the program name.
    pub(crate) fn program(&self) -> &'static str {
        match &self.original {
            Original::KubeStateMetrics(_) => "kube-state-metrics",
            Original::StatsdExporter(_) => "statsd_exporter",
        }
    }

    /// Replaces the kubeconfig of the flags.
    pub(crate) fn set_kubeconfig(&mut self, path: String) {
        if let Original::KubeStateMetrics(args) = &mut self.original {
            self.flags.push(format!("--kubeconfig={path}"));
            args.kubeconfig = path;
        }
    }

    /// Returns whether the flags name an API server.
    pub(crate) fn has_api_server(&self) -> bool {
        match &self.original {
            Original::KubeStateMetrics(args) => {
                !args.kubeconfig.is_empty() || !args.apiserver.is_empty()
            }
            Original::StatsdExporter(_) => false,
        }
    }

    /// Returns the flags with listeners on loopback ports, without TLS and authentication, and with
    /// the log that names the ports.
    fn of_candidate(&self) -> Vec<String> {
        let (removed, added): (&[&str], &[&str]) = match &self.original {
            // The last occurrence of a flag counts.
            Original::KubeStateMetrics(_) => (&[], &OF_CANDIDATE),
            // No flag may be repeated.
            Original::StatsdExporter(_) => (
                &["web.listen-address", "web.config.file", "log.level", "log.format"],
                &["--web.listen-address=127.0.0.1:0"],
            ),
        };
        let mut flags = Vec::new();
        let mut words = self.flags.iter();
        while let Some(word) = words.next() {
            let name = word.trim_start_matches('-');
            if removed.contains(&name) {
                words.next();
            } else if !removed
                .iter()
                .any(|of| name.strip_prefix(of).is_some_and(|rest| rest.starts_with('=')))
            {
                flags.push(word.clone());
            }
        }
        flags.extend(added.iter().map(|flag| (*flag).to_owned()));
        flags
    }

    /// Returns the path of the metrics.
    pub(crate) fn path(&self) -> &str {
        match &self.original {
            Original::KubeStateMetrics(_) => "/metrics",
            Original::StatsdExporter(args) => &args.web_telemetry_path,
        }
    }
}

/// Adds the options of the options file, if there is one, to the flags.
///
/// # Errors
/// It cannot be read, or sets an option that differs for the candidate: in a file it outranks the flag.
fn merge_options_file(args: &mut KubeArgs) -> Result<(), String> {
    let of_listeners = |args: &KubeArgs| {
        let KubeArgs { host, port, telemetry_host, telemetry_port, auth_filter, .. } = args;
        [
            ("host", host.clone()),
            ("port", port.to_string()),
            ("telemetry_host", telemetry_host.clone()),
            ("telemetry_port", telemetry_port.to_string()),
            ("auth_filter", auth_filter.to_string()),
            ("tls_config", args.tls_config.clone()),
        ]
    };
    let mut of_candidate = args.clone();
    pflag::parse(&kube_flags::all(), &mut of_candidate, &OF_CANDIDATE.map(str::to_owned))
        .map_err(|error| error.to_string())?;
    let own = of_listeners(&of_candidate);
    for args in [args, &mut of_candidate] {
        config::read_options_file(args, Load::First).map_err(|error| error.to_string())?;
    }
    match of_listeners(&of_candidate).into_iter().zip(own).find(|(one, other)| one != other) {
        None => Ok(()),
        Some(((name, value), _)) => Err(format!(
            "{} sets {name} to {value}, which the candidate cannot have: add --{}={value} and name a copy of the file without it",
            of_candidate.config,
            name.replace('_', "-"),
        )),
    }
}

/// The log of a candidate: the addresses that it names, and its last lines.
#[derive(Default)]
struct CandidateLog {
    main: Option<SocketAddr>,
    telemetry: Option<SocketAddr>,
    last: VecDeque<String>,
}

/// The child process. Dropping it kills it.
pub(super) struct Candidate {
    child: Child,
    log: watch::Receiver<CandidateLog>,
}

impl Candidate {
    /// Starts this program under the name of the original.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(line: &CommandLine) -> Result<Self> {
        let fault = |error: std::io::Error| format!("cannot start kstatd: {error}");
        let mut command = std::process::Command::new(std::env::current_exe().map_err(fault)?);
        command.arg0(line.program()).args(line.of_candidate());
        // Ctrl-C is for this process only, which ends the child when it has reported.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = Command::from(command).kill_on_drop(true).spawn().map_err(fault)?;
        let (sender, log) = watch::channel(CandidateLog::default());
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(follow(stderr, sender));
        }
        Ok(Self { child, log })
    }

    /// Waits until it listens, and returns the URLs of its metrics and of its own metrics.
    ///
    /// # Errors
    /// It ended.
    pub(super) async fn urls(&mut self, line: &CommandLine) -> Result<(String, String)> {
        let has_telemetry = matches!(line.original, Original::KubeStateMetrics(_));
        let is_complete =
            |log: &CandidateLog| log.main.is_some() && (log.telemetry.is_some() || !has_telemetry);
        let found = self.log.wait_for(is_complete).await.map(|log| (log.main, log.telemetry));
        let Ok((Some(main), telemetry)) = found else {
            return Err(self.ended().await.into());
        };
        let url = format!("http://{main}{}", line.path());
        Ok((url.clone(), telemetry.map_or(url, |at| format!("http://{at}/metrics"))))
    }

    /// Waits until it ends, and describes its end.
    pub(super) async fn ended(&mut self) -> String {
        let status = self.child.wait().await;
        // The log ends with the process, but may still be read.
        while self.log.changed().await.is_ok() {}
        let status =
            status.map_or_else(|error| error.to_string(), |status: ExitStatus| status.to_string());
        format!("kstatd ended ({status}):\n{}", self.last_lines())
    }

    /// Ends it.
    pub(super) async fn stop(mut self) {
        // It has no state that must be saved.
        let _ = self.child.kill().await;
    }

    /// Returns the last lines of its log.
    pub(super) fn last_lines(&self) -> String {
        let lines = &self.log.borrow().last;
        lines.iter().map(|line| format!("  {}", printable(line))).collect::<Vec<_>>().join("\n")
    }
}

/// Reads the log until the process ends.
async fn follow(stderr: impl AsyncRead + Unpin, log: watch::Sender<CandidateLog>) {
    let mut lines = BufReader::new(stderr).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        let line = String::from_utf8_lossy(&line).into_owned();
        let address = |key: &str| {
            let (_, rest) = line.split_once(key)?;
            rest.split([' ', '"']).find(|word| !word.is_empty())?.parse().ok()
        };
        let address = address("addr=").or_else(|| address("address="));
        log.send_modify(|log| {
            if ["Started metrics server", "Accepting Prometheus Requests"]
                .iter()
                .any(|text| line.contains(text))
            {
                log.main = address;
            } else if line.contains("Started self metrics server") {
                log.telemetry = address;
            }
            if log.last.len() == LOG_LINES {
                log.last.pop_front();
            }
            log.last.push_back(line);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<CommandLine> {
        CommandLine::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn listeners_move_to_loopback() {
        let line =
            parse(&["/kube-state-metrics", "--port", "80", "--resources=pods"]).expect("flags");
        let flags = line.of_candidate();
        assert_eq!(flags[..3], ["--port", "80", "--resources=pods"]);
        assert!(flags[3..].contains(&"--port=0".to_owned()), "{flags:?}");
        let line = parse(&[
            "statsd_exporter",
            "--web.listen-address",
            ":9102",
            "--log.level=error",
            "--statsd.listen-udp=:1",
            "--web.telemetry-path=/m",
        ]);
        let line = line.expect("flags");
        let want = [
            "--statsd.listen-udp=:1",
            "--web.telemetry-path=/m",
            "--web.listen-address=127.0.0.1:0",
        ];
        assert_eq!(line.of_candidate(), want);
        assert_eq!(line.path(), "/m");
    }

    #[test]
    fn an_options_file_counts_and_must_not_move_the_listeners() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let config = format!("--config={}", file.path().display());
        std::fs::write(file.path(), "apiserver: http://a.test\n").expect("written");
        let line = parse(&["--port=80", &config]).expect("flags");
        assert!(line.has_api_server());
        std::fs::write(file.path(), "port: 9090\n").expect("written");
        let error = parse(&["--port=80", &config]).expect_err("an error").to_string();
        assert!(error.contains("sets port to 9090") && error.contains("--port=9090"), "{error}");
        assert!(parse(&["--port=9090", &config]).is_err(), "the candidate would have this port");
    }

    #[test]
    fn errors_name_the_program() {
        for (words, want) in [
            (&["--wrong"][..], "flags of kube-state-metrics: unknown flag: --wrong"),
            (&["--port=1", "word"], "flags of kube-state-metrics: unexpected argument \"word\""),
            (
                &["statsd_exporter", "--port=1"],
                "flags of statsd_exporter: unknown long flag '--port'",
            ),
            (
                &["statsd_exporter", "--version"],
                "flags of statsd_exporter: one of them only prints something",
            ),
            (&["prometheus"], "\"prometheus\" is not an original"),
        ] {
            let error = parse(words).expect_err("an error").to_string();
            assert!(error.starts_with(want), "{error}");
        }
    }
}
