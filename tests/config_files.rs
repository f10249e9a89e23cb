//! Configuration files that become invalid, disappear or block at runtime: each is handled independently, and none
//! delays shutdown, scrapes or another file.

#[path = "web_config/client.rs"]
mod client;
mod common;
#[path = "web_config/pki.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod pki;

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::cluster::Cluster;
use common::{Program, get, until};
use serde_json::Value;

/// Far shorter than the blocking of a pipe, far longer than a shutdown takes.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(30);

const HERE: [&str; 2] = ["--listen=127.0.0.1:0", "--telemetry-listen=127.0.0.1:0"];
const STATSD: [&str; 2] = ["--statsd.listen-udp=127.0.0.1:0", "--statsd.listen-tcp="];
const CUSTOM: &str = "--custom-resource-state-config-file";

fn options(denied: &str) -> String {
    format!("resources: {{pods: {{}}}}\nmetric_denylist: {{{denied}: {{}}}}\n")
}

fn custom(name: &str) -> String {
    format!(
        "spec: {{resources: [{{groupVersionKind: {{group: '', version: v1, kind: Pod}}, metrics: [{{name: {name}, \
         help: S., each: {{type: Info, info: {{labelsFromPath: {{pod: [metadata, name]}}}}}}}}]}}]}}\n"
    )
}

fn mapping(name: &str) -> String {
    format!("mappings: [{{match: 'a.*', name: {name}}}]\n")
}

/// Replaces a file atomically by a pipe without a writer.
fn pipe(path: &Path) {
    let beside = path.with_extension("pipe");
    assert!(Command::new("mkfifo").arg(&beside).status().expect("mkfifo").success());
    std::fs::rename(&beside, path).expect("rename");
}

struct Kstatd {
    program: Program,
    main: SocketAddr,
    telemetry: SocketAddr,
}

impl Kstatd {
    fn start(flags: &[String]) -> Self {
        let fixed = HERE.iter().map(|flag| (*flag).to_owned());
        let program = Program::start("kstatd", fixed.chain(flags.iter().cloned()));
        let main = program.address(&["Started metrics server"], "address");
        let telemetry = program.address(&["Started self metrics server"], "address");
        Self { program, main, telemetry }
    }

    /// Starts with files of options and of custom resources.
    fn start_with_files(cluster: &Cluster, options: &Path, custom: &Path) -> Self {
        let mut flags = vec![
            cluster.flag(),
            format!("--config={}", options.display()),
            format!("{CUSTOM}={}", custom.display()),
        ];
        flags.extend(STATSD.map(str::to_owned));
        Self::start(&flags)
    }

    fn has(&self, family: &str) -> bool {
        get(self.main, "/metrics").text().contains(&format!("\n{family}{{"))
    }

    fn gauge(&self, kind: &str) -> Option<bool> {
        let text = get(self.telemetry, "/metrics").text();
        let series = text.lines().find(|line| {
            line.starts_with("kube_state_metrics_last_config_reload_successful{")
                && line.contains(&format!("type=\"{kind}\""))
        });
        series.and_then(|line| line.rsplit_once(' ')).map(|(_, value)| value == "1")
    }

    /// Returns the entry of a file on the status page.
    fn file(&self, path: &Path) -> Option<Value> {
        let status: Value =
            serde_json::from_str(&get(self.main, "/status?format=json").text()).expect("JSON");
        let files = status["files"].as_array().expect("files");
        files.iter().find(|file| file["path"] == *path.to_string_lossy()).cloned()
    }

    fn wait_until_blocked(&self, path: &Path) {
        let what = format!("{} is said not to answer", path.display());
        until(&what, || {
            self.file(path).filter(|file| !file["unanswered_since"].is_null()).map(drop)
        });
        self.program.line(&["The file does not answer", &path.display().to_string()]);
    }

    fn assert_clean_shutdown(mut self) {
        let began = Instant::now();
        self.program.signal("TERM");
        assert_eq!(self.program.ended().code(), Some(0));
        assert!(began.elapsed() < SHUTDOWN_LIMIT, "{:?}", began.elapsed());
    }
}

/// The fault of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    New,
    Broken,
    Deleted,
    Directory,
    Pipe,
}

const FAULTS: [Fault; 6] =
    [Fault::None, Fault::New, Fault::Broken, Fault::Deleted, Fault::Directory, Fault::Pipe];

impl Fault {
    fn make(self, path: &Path, new: &str) {
        match self {
            Self::None => {}
            Self::New => common::replace(path, new),
            Self::Broken => common::replace(path, "{{"),
            Self::Deleted => std::fs::remove_file(path).expect("remove"),
            Self::Directory => {
                std::fs::remove_file(path).expect("remove");
                std::fs::create_dir(path).expect("directory");
            }
            Self::Pipe => pipe(path),
        }
    }

    fn is_usable(self) -> bool {
        matches!(self, Self::None | Self::New)
    }

    /// Returns the expected reason on the status page.
    fn reason(self) -> &'static str {
        match self {
            Self::None | Self::New => "",
            Self::Broken => "line 1",
            Self::Deleted => "No such file",
            Self::Directory => "Is a directory",
            Self::Pipe => "does not answer",
        }
    }
}

/// The end of such a fault is no event of the file system.
#[test]
fn files_are_read_again_after_a_lack_of_descriptors() {
    let cluster = Cluster::new(3);
    let dir = tempfile::tempdir().expect("directory");
    let (options_file, custom_file) =
        (dir.path().join("options.yaml"), dir.path().join("custom.yaml"));
    std::fs::write(&options_file, options("kube_pod_info")).expect("write");
    std::fs::write(&custom_file, custom("one")).expect("write");
    let kstatd = Kstatd::start_with_files(&cluster, &options_file, &custom_file);
    let are_in_force = || {
        kstatd.gauge("config") == Some(true) && kstatd.gauge("customresourceconfig") == Some(true)
    };
    until("the first content is in force", || are_in_force().then_some(()));
    let limit = |files: &str| {
        let pid = kstatd.program.id().to_string();
        let flag = format!("--nofile={files}:");
        let limited = Command::new("prlimit").args(["--pid", &pid, &flag]).status();
        assert!(limited.expect("prlimit").success());
    };
    limit("4");
    common::replace(&options_file, &options("kube_pod_created"));
    common::replace(&custom_file, &custom("two"));
    kstatd.program.line(&["Cannot apply the new configuration", "Too many open files"]);
    // The files are compared once more just after the attempt. The lack lasts longer.
    let began = Instant::now();
    let is_over = || (began.elapsed() > Duration::from_secs(2)).then_some(());
    until("the lack has lasted for two seconds", is_over);
    limit("1000");
    until("the new content is in force", || {
        let is_new = kstatd.has("kube_pod_info") && kstatd.has("kube_customresource_two");
        (is_new && are_in_force()).then_some(())
    });
}

#[test]
fn options_and_custom_resources_are_applied_independently() {
    let cluster = Cluster::new(3);
    let dir = tempfile::tempdir().expect("directory");
    let (first, second) = (dir.path().join("options.yaml"), dir.path().join("custom.yaml"));
    let (old_options, new_options) = (options("kube_pod_info"), options("kube_pod_created"));
    let (old_custom, new_custom) = (custom("one"), custom("two"));
    std::fs::write(&first, &old_options).expect("write");
    std::fs::write(&second, &old_custom).expect("write");
    let kstatd = Kstatd::start_with_files(&cluster, &first, &second);
    // Returns whether each file's original or changed content is applied.
    let shows = |options: Fault, custom: Fault| {
        kstatd.has("kube_pod_info") == (options == Fault::New)
            && kstatd.has("kube_pod_created") == (options != Fault::New)
            && kstatd.has("kube_customresource_one") == (custom != Fault::New)
            && kstatd.has("kube_customresource_two") == (custom == Fault::New)
            && kstatd.gauge("config") == Some(options.is_usable())
            && kstatd.gauge("customresourceconfig") == Some(custom.is_usable())
    };
    until("the start is over", || shows(Fault::None, Fault::None).then_some(()));
    for (number, options) in FAULTS.into_iter().enumerate() {
        for custom in FAULTS {
            let what = format!("options {options:?}, custom resources {custom:?}");
            options.make(&first, &new_options);
            custom.make(&second, &new_custom);
            until(&what, || shows(options, custom).then_some(()));
            for (path, change) in [(&first, options), (&second, custom)] {
                let told = until(&format!("{what}: the page"), || {
                    let file = kstatd.file(path)?;
                    (file["in_force"] == change.is_usable()).then_some(file)
                });
                let error = told["error"].as_str().unwrap_or_default();
                assert!(error.contains(change.reason()), "{what}: {told}");
                assert_eq!(error.is_empty(), change.is_usable(), "{what}: {told}");
            }
            // In either order, one of them while the other is still faulty.
            let mut back =
                [(&first, options, &old_options, true), (&second, custom, &old_custom, false)];
            if number % 2 == 1 {
                back.reverse();
            }
            for (count, (path, change, text, is_options)) in back.into_iter().enumerate() {
                if change == Fault::Directory {
                    std::fs::remove_dir(path).expect("remove");
                }
                if change != Fault::None {
                    common::replace(path, text);
                }
                let other = if is_options { custom } else { options };
                let other = if count == 0 { other } else { Fault::None };
                let now = if is_options { (Fault::None, other) } else { (other, Fault::None) };
                let what = format!("{what}: {} is back", path.display());
                until(&what, || shows(now.0, now.1).then_some(()));
            }
        }
    }
    kstatd.assert_clean_shutdown();
}

/// An options file that cannot be applied at runtime leaves custom resources unchanged too.
#[test]
fn rejected_options_do_not_delay_custom_resources() {
    let cluster = Cluster::new(3);
    let dir = tempfile::tempdir().expect("directory");
    let (first, second) = (dir.path().join("options.yaml"), dir.path().join("custom.yaml"));
    std::fs::write(&first, options("kube_pod_info")).expect("write");
    std::fs::write(&second, custom("one")).expect("write");
    let kstatd = Kstatd::start(&[
        cluster.flag(),
        format!("--config={}", first.display()),
        format!("{CUSTOM}={}", second.display()),
        "--statsd.listen-udp=".to_owned(),
        "--statsd.listen-tcp=".to_owned(),
    ]);
    until("the start is over", || (kstatd.gauge("config") == Some(true)).then_some(()));
    for (text, part) in [
        ("pod: other\nnamespace: other\n", "--pod and --pod-namespace cannot change"),
        ("kubeconfig: /no/such/file\n", "/no/such/file"),
    ] {
        common::replace(&first, &format!("{}{text}", options("kube_pod_info")));
        until(part, || (kstatd.gauge("config") == Some(false)).then_some(()));
        let told = kstatd.file(&first).expect("told of");
        assert!(told["error"].as_str().is_some_and(|error| error.contains(part)), "{told}");
        common::replace(&second, &custom("two"));
        until("custom resources", || kstatd.has("kube_customresource_two").then_some(()));
        until("their gauge", || (kstatd.gauge("customresourceconfig") == Some(true)).then_some(()));
        assert_eq!(kstatd.gauge("config"), Some(false));
        common::replace(&first, &options("kube_pod_info"));
        common::replace(&second, &custom("one"));
        until("both", || (kstatd.gauge("config") == Some(true)).then_some(()));
        until("custom resources", || kstatd.has("kube_customresource_one").then_some(()));
    }
}

#[test]
fn broken_kubeconfig_is_reported_and_delays_no_other_file() {
    let cluster = Cluster::new(3);
    let dir = tempfile::tempdir().expect("directory");
    let (file, kubeconfig) = (dir.path().join("options.yaml"), dir.path().join("kubeconfig"));
    let text = format!(
        "clusters: [{{name: c, cluster: {{server: '{}'}}}}]\nusers: [{{name: u, user: {{}}}}]\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n",
        cluster.double.url()
    );
    std::fs::write(&file, options("kube_pod_info")).expect("write");
    std::fs::write(&kubeconfig, &text).expect("write");
    let kstatd = Kstatd::start(&[
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--config={}", file.display()),
        "--statsd.listen-udp=".to_owned(),
        "--statsd.listen-tcp=".to_owned(),
    ]);
    until("the start is over", || (kstatd.gauge("config") == Some(true)).then_some(()));
    for change in [Fault::Broken, Fault::Deleted, Fault::Directory, Fault::Pipe] {
        change.make(&kubeconfig, "");
        until(&format!("{change:?} is told"), || {
            let told = kstatd.file(&kubeconfig)?;
            (told["in_force"] == false && !told["error"].is_null()).then_some(())
        });
        assert_eq!(kstatd.gauge("config"), Some(true), "{change:?}");
        common::replace(&file, &options("kube_pod_created"));
        until("the options are applied", || kstatd.has("kube_pod_info").then_some(()));
        common::replace(&file, &options("kube_pod_info"));
        until("and back", || (!kstatd.has("kube_pod_info")).then_some(()));
        if change == Fault::Directory {
            std::fs::remove_dir(&kubeconfig).expect("remove");
        }
        common::replace(&kubeconfig, &text);
        until("nothing is wrong", || kstatd.file(&kubeconfig).is_none().then_some(()));
    }
    kstatd.assert_clean_shutdown();
}

/// Every file that a running process reads.
struct Files {
    _dir: tempfile::TempDir,
    options: PathBuf,
    custom: PathBuf,
    mapping: PathBuf,
    kubeconfig: PathBuf,
    token: PathBuf,
    web: PathBuf,
}

impl Files {
    fn new(cluster: &Cluster) -> Self {
        let dir = tempfile::tempdir().expect("directory");
        let path = |name: &str| dir.path().join(name);
        let files = Self {
            options: path("options.yaml"),
            custom: path("custom.yaml"),
            mapping: path("mapping.yml"),
            kubeconfig: path("kubeconfig"),
            token: path("token"),
            web: path("web.yml"),
            _dir: dir,
        };
        let kubeconfig = format!(
            "clusters: [{{name: c, cluster: {{server: '{}'}}}}]\n\
             users: [{{name: u, user: {{tokenFile: '{}'}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n",
            cluster.double.url(),
            files.token.display()
        );
        for (path, text) in [
            (&files.options, options("kube_pod_info")),
            (&files.custom, custom("one")),
            (&files.mapping, mapping("first")),
            (&files.kubeconfig, kubeconfig),
            (&files.token, "secret".to_owned()),
            (&files.web, "http_server_config: {http2: true}\n".to_owned()),
        ] {
            std::fs::write(path, text).expect("write");
        }
        files
    }

    fn flags(&self) -> Vec<String> {
        let mut flags = vec![
            format!("--config={}", self.options.display()),
            format!("{CUSTOM}={}", self.custom.display()),
            format!("--statsd.mapping-config={}", self.mapping.display()),
            format!("--kubeconfig={}", self.kubeconfig.display()),
            format!("--web.config.file={}", self.web.display()),
        ];
        flags.extend(STATSD.map(str::to_owned));
        flags
    }

    fn all(&self) -> [&PathBuf; 6] {
        [&self.options, &self.custom, &self.mapping, &self.kubeconfig, &self.token, &self.web]
    }
}

/// A pipe without a writer represents a file on an unreachable network file system.
#[test]
fn blocking_reads_do_not_delay_scrapes_other_files_or_shutdown() {
    let cluster = Cluster::new(3);
    let files = Files::new(&cluster);
    for hanging in files.all() {
        let kstatd = Kstatd::start(&files.flags());
        let udp = kstatd.program.address(&["Accepting StatsD Traffic"], "udp");
        until("the start is over", || (kstatd.gauge("config") == Some(true)).then_some(()));
        until("it is scraped", || (get(kstatd.main, "/metrics").status == 200).then_some(()));
        let before = std::fs::read_to_string(hanging).expect("a file");
        pipe(hanging);
        if *hanging == files.token {
            // A request to the API server reads the token.
            common::replace(&files.options, &options("kube_pod_created"));
        }
        // More often than there are threads.
        for _ in 0..40 {
            kstatd.program.signal("HUP");
            let began = Instant::now();
            assert_eq!(get(kstatd.main, "/metrics").status, 200);
            assert!(began.elapsed() < SHUTDOWN_LIMIT, "{}", hanging.display());
        }
        kstatd.wait_until_blocked(hanging);
        let status = get(kstatd.main, "/status?format=text").text();
        assert!(status.contains("has not responded since"), "{status}");
        let tasks = std::fs::read_dir(format!("/proc/{}/task", kstatd.program.id()));
        let threads = tasks.expect("tasks").count();
        assert!(threads < 40, "{threads} threads");
        // Another file is still applied.
        if *hanging != files.options {
            common::replace(&files.options, &options("kube_pod_created"));
            until("the options are applied", || kstatd.has("kube_pod_info").then_some(()));
            common::replace(&files.options, &options("kube_pod_info"));
        } else {
            common::replace(&files.custom, &custom("two"));
            until("they are applied", || kstatd.has("kube_customresource_two").then_some(()));
            common::replace(&files.custom, &custom("one"));
        }
        if *hanging != files.mapping {
            std::fs::write(&files.mapping, mapping("second")).expect("write");
            kstatd.program.signal("HUP");
            let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
            until("the mapping is applied", || {
                sender.send_to(b"a.b:1|c", udp).expect("sent");
                get(kstatd.main, "/metrics/statsd").text().contains("second ").then_some(())
            });
            std::fs::write(&files.mapping, mapping("first")).expect("write");
        }
        kstatd.assert_clean_shutdown();
        common::replace(hanging, &before);
    }
}

#[test]
fn files_are_applied_when_a_blocking_read_returns() {
    let cluster = Cluster::new(3);
    let files = Files::new(&cluster);
    let kstatd = Kstatd::start(&files.flags());
    let udp = kstatd.program.address(&["Accepting StatsD Traffic"], "udp");
    until("the start is over", || (kstatd.gauge("config") == Some(true)).then_some(()));
    let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let maps_to = |name: &str| {
        until(name, || {
            sender.send_to(b"a.b:1|c", udp).expect("sent");
            get(kstatd.main, "/metrics/statsd").text().contains(&format!("\n{name} ")).then_some(())
        });
    };
    maps_to("first");
    pipe(&files.mapping);
    kstatd.program.signal("HUP");
    kstatd.wait_until_blocked(&files.mapping);
    std::fs::write(&files.mapping, mapping("written")).expect("write");
    maps_to("written");
    kstatd.program.signal("HUP");
    kstatd.wait_until_blocked(&files.mapping);
    common::replace(&files.mapping, &mapping("replaced"));
    kstatd.program.signal("HUP");
    maps_to("replaced");
    for (path, text, family, is_late) in [
        (&files.options, options("kube_pod_created"), "kube_pod_info", true),
        (&files.custom, custom("two"), "kube_customresource_two", true),
        (&files.options, options("kube_pod_info"), "kube_pod_created", false),
        (&files.custom, custom("three"), "kube_customresource_three", false),
    ] {
        pipe(path);
        if is_late {
            kstatd.wait_until_blocked(path);
        }
        // Returns when the program has opened the pipe.
        std::fs::write(path, text).expect("write");
        // Each SIGHUP replaces the reload in progress, which may have read the pipe already.
        for _ in 0..20 {
            kstatd.program.signal("HUP");
            let scrape = get(kstatd.main, "/metrics");
            assert_eq!(scrape.status, 200, "{}", scrape.text());
        }
        until(family, || kstatd.has(family).then_some(()));
    }
    kstatd.assert_clean_shutdown();
}

#[test]
fn sigterm_ends_a_startup_that_blocks_on_a_file() {
    let cluster = Cluster::new(3);
    let files = Files::new(&cluster);
    // A web configuration that cannot be read is a startup error.
    for hanging in &files.all()[..5] {
        let before = std::fs::read_to_string(hanging).expect("a file");
        pipe(hanging);
        let fixed = HERE.iter().map(|flag| (*flag).to_owned());
        let mut program = Program::start("kstatd", fixed.chain(files.flags()));
        program.line(&["Waiting for a file", &hanging.display().to_string()]);
        program.signal("TERM");
        assert_eq!(program.ended().code(), Some(0), "{}", hanging.display());
        common::replace(hanging, &before);
    }
    pipe(&files.mapping);
    let flag = format!("--statsd.mapping-config={}", files.mapping.display());
    let args = [flag.as_str(), "--web.listen-address=127.0.0.1:0"];
    let mut program = Program::start("statsd_exporter", args);
    program.line(&["Waiting for a file"]);
    program.signal("TERM");
    assert_eq!(program.ended().code(), Some(0));
    // A late writer is waited for.
    let program = Program::start("statsd_exporter", args);
    program.line(&["Waiting for a file"]);
    std::fs::write(&files.mapping, mapping("late")).expect("write");
    program.line(&["Accepting Prometheus Requests"]);
}

/// The key of a listener disappears: new clients get the certificate that was loaded before.
#[test]
fn blocking_certificate_keeps_the_current_one() {
    let pki = pki::Pki::new();
    let dir = tempfile::tempdir().expect("directory");
    let path = |name: &str| dir.path().join(name);
    for name in ["server.crt", "server.key"] {
        std::fs::write(path(name), pki.text(name)).expect("write");
    }
    let text = "tls_server_config: {cert_file: server.crt, key_file: server.key}\n";
    std::fs::write(path("web.yml"), text).expect("write");
    let web = format!("--web.config.file={}", path("web.yml").display());
    let args = [&web, "--web.listen-address=127.0.0.1:0", "--statsd.listen-udp=127.0.0.1:0"];
    let mut program = Program::start("statsd_exporter", args);
    let address = program.address(&["Accepting Prometheus Requests"], "addr");
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    let asked = || {
        let asking = async {
            let request = serde_json::json!({"path": "/metrics"});
            match client::connect(address, &request, &pki, true).await {
                Ok(client::ConnectOutcome::Connection(mut connection)) => {
                    connection.send(&request).await["status"].clone()
                }
                _ => Value::Null,
            }
        };
        runtime.block_on(asking)
    };
    assert_eq!(asked(), 200);
    pipe(&path("server.key"));
    assert_eq!(asked(), 200);
    program.line(&["The file does not answer", "server.key"]);
    program.signal("TERM");
    assert_eq!(program.ended().code(), Some(0));
}
