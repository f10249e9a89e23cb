pub(crate) mod simulated;

use std::fs;
use std::future::pending;
use std::path::Path;
use std::time::Duration;

use ::kube::config::{AuthProviderConfig, ExecConfig};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::header::AUTHORIZATION;
use jiff::Timestamp;
use tokio::time::timeout;
use tower::service_fn;

use super::super::config::ClientOptions;
use super::plugins::{AGAIN, sign};
use super::plugins::{chain, end};
use super::state::Signer;
use super::*;

fn text(path: &Path) -> Option<String> {
    Some(path.to_string_lossy().into_owned())
}

/// Creates the identity of a user for a server URL, or returns the error.
fn identity(server: &str, cluster: Cluster, user: AuthInfo) -> Result<Identity, String> {
    let cluster = Cluster { server: Some(server.to_owned()), ..cluster };
    let setup = ClientOptions::default().with(cluster, user);
    setup.map(|setup| setup.identity).map_err(|error| error.to_string())
}

fn plain(user: AuthInfo) -> Result<Identity, String> {
    identity("http://a", Cluster::default(), user)
}

async fn sent(identity: &Identity) -> (Current, String) {
    let now = identity.current().await.unwrap_or_else(|error| panic!("{error}"));
    let text = now.headers.get(AUTHORIZATION).and_then(|header| header.to_str().ok());
    let text = text.unwrap_or_default().to_owned();
    (now, text)
}

#[tokio::test]
async fn token_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("token");
    let open = || plain(AuthInfo { token_file: text(&path), ..AuthInfo::default() });
    assert!(open().err().is_some_and(|error| error.contains("No such file")));
    fs::write(&path, " \n").expect("written");
    assert!(open().err().is_some_and(|error| error.contains("it is empty")));
    fs::write(&path, "a\u{7f}b").expect("written");
    assert!(open().err().is_some_and(|error| error.contains("cannot be sent")));
    fs::write(&path, " one\r\n").expect("written");
    let identity = open().unwrap_or_else(|error| panic!("{error}"));
    let (one, text) = sent(&identity).await;
    assert_eq!(text, "Bearer one");
    assert!(!identity.refused(&one).await);
    fs::write(&path, "two").expect("written");
    assert!(identity.refused(&one).await);
    let (two, text) = sent(&identity).await;
    assert_eq!(text, "Bearer two");
    // A request rejected with the first token can retry with the second, even if another request has loaded it.
    assert!(identity.refused(&one).await);
    assert!(!identity.refused(&two).await);
    // While the file is empty or missing, the previous token is used.
    fs::write(&path, "").expect("written");
    assert_eq!(sent(&identity).await.1, "Bearer two");
    fs::remove_file(&path).expect("removed");
    assert_eq!(sent(&identity).await.1, "Bearer two");
    fs::write(&path, "three").expect("written");
    assert_eq!(sent(&identity).await.1, "Bearer three");
}

#[tokio::test]
async fn a_token_counts_while_the_file_beside_it_cannot_be_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("token");
    let open = || {
        let token = Some("beside".into());
        plain(AuthInfo { token, token_file: text(&path), ..AuthInfo::default() })
    };
    let identity = open().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(sent(&identity).await.1, "Bearer beside");
    fs::write(&path, "").expect("written");
    assert_eq!(sent(&identity).await.1, "Bearer beside");
    fs::write(&path, "inside").expect("written");
    assert_eq!(sent(&identity).await.1, "Bearer inside");
    let identity = open().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(sent(&identity).await.1, "Bearer inside");
}

#[tokio::test]
async fn users_act_as_others() {
    let user = AuthInfo {
        username: Some("u".to_owned()),
        impersonate: Some("jane".to_owned()),
        impersonate_groups: Some(vec!["a".to_owned(), "b".to_owned()]),
        impersonate_user_extra: Some([("Some/Key".to_owned(), vec!["v".to_owned()])].into()),
        ..AuthInfo::default()
    };
    let identity = plain(user).unwrap_or_else(|error| panic!("{error}"));
    let (now, authorization) = sent(&identity).await;
    assert_eq!(authorization, "Basic dTo=");
    let headers = now.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let mut headers: Vec<_> = headers.filter(|(name, _)| name.starts_with("impersonate")).collect();
    headers.sort();
    let expected: [(&str, &[u8]); 4] = [
        ("impersonate-extra-some%2fkey", b"v"),
        ("impersonate-group", b"a"),
        ("impersonate-group", b"b"),
        ("impersonate-user", b"jane"),
    ];
    assert_eq!(headers, expected);
    // A retry sets the same headers again without duplicating them.
    let mut request = HeaderMap::clone(&now.headers);
    request.extend(HeaderMap::clone(&now.headers));
    assert_eq!(request, *now.headers);
}

/// Returns a user with a shell script as exec plugin.
fn plugin(script: &str) -> AuthInfo {
    let exec = ExecConfig {
        command: Some("/bin/sh".to_owned()),
        args: Some(vec!["-c".to_owned(), script.to_owned()]),
        env: Some(vec![
            [("name".to_owned(), "GIVEN".to_owned()), ("value".to_owned(), "abc".to_owned())]
                .into(),
        ]),
        api_version: Some("client.authentication.k8s.io/v1".to_owned()),
        provide_cluster_info: true,
        ..ExecConfig::default()
    };
    AuthInfo { exec: Some(exec), ..AuthInfo::default() }
}

const HEAD: &str = r#"{"apiVersion":"client.authentication.k8s.io/v1","status":"#;

async fn complaint(script: &str) -> String {
    let identity = plain(plugin(script)).unwrap_or_else(|error| panic!("{error}"));
    identity.current().await.err().map(|error| error.to_string()).unwrap_or_default()
}

#[tokio::test]
async fn plugins_are_read() {
    let script = format!(
        r#"echo '{HEAD}{{"token":"'$GIVEN'","expirationTimestamp":"2100-01-02T03:04:05Z"}}}}'"#
    );
    let identity = plain(plugin(&script)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(sent(&identity).await.1, "Bearer abc");
    let told =
        r#"case "$KUBERNETES_EXEC_INFO" in *'"server":"http://a/"'*) echo told >&2; esac; exit 3"#;
    assert_eq!(complaint(told).await, "exec plugin /bin/sh: exit status: 3: told");
}

#[tokio::test]
async fn mistakes_of_plugins_are_named() {
    for (script, reason) in [
        ("echo a secret", "prints no ExecCredential"),
        ("echo '{}'", "did not contain a status"),
        (&format!("echo '{HEAD}null}}'"), "did not contain a status"),
        (&format!("echo '{HEAD}{{}}}}'"), "neither a token nor a certificate"),
        (&format!(r#"echo '{HEAD}{{"clientKeyData":"k"}}}}'"#), "neither a token"),
        (
            &format!(r#"echo '{HEAD}{{"token":"secret","expirationTimestamp":"x"}}}}'"#),
            "malformed token expiration",
        ),
        (&format!(r#"echo '{HEAD}{{"token":"secret\u0001"}}}}'"#), "cannot be sent"),
        ("echo secret; echo one >&2; echo two >&2; exit 1", "exit status: 1: one | two"),
    ] {
        let error = complaint(script).await;
        assert!(error.contains(reason), "{script}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
    let mut absent = plugin("");
    let exec = absent.exec.as_mut().expect("one");
    exec.command = Some("/not/there".to_owned());
    exec.install_hint = Some("see https://there".to_owned());
    let identity = plain(absent).unwrap_or_else(|error| panic!("{error}"));
    let error = identity.current().await.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.starts_with("exec plugin /not/there: it cannot be started: No such"), "{error}");
    assert!(error.ends_with("; see https://there"), "{error}");
    let terminal = |version: &str, mode| {
        let mut user = plugin("");
        let exec = user.exec.as_mut().expect("one");
        (exec.api_version, exec.interactive_mode) = (Some(version.to_owned()), mode);
        plain(user).err().unwrap_or_default()
    };
    let always = Some(::kube::config::ExecInteractiveMode::Always);
    assert!(terminal("client.authentication.k8s.io/v1", always).contains("terminal"));
    assert!(terminal("client.authentication.k8s.io/v1alpha1", None).contains("not supported"));
}

/// Returns a plugin that prints its run number as the token and counts its runs in a file.
fn numbering(runs: &Path, expires: &str) -> AuthInfo {
    plugin(&format!(
        "echo >> {runs}; printf '{HEAD}{{\"token\":\"t%s\",\"expirationTimestamp\":\"{expires}\"}}}}' \
         $(wc -l < {runs})",
        runs = runs.display()
    ))
}

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

/// Advances the clock of tokio. Plugins need the real clock in between.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn plugins_run_again_when_their_time_is_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let runs = dir.path().join("runs");
    let open = |expires| plain(numbering(&runs, expires)).unwrap_or_else(|error| panic!("{error}"));
    let over = open("2001-01-01T00:00:00Z");
    // kube runs the plugin, and again because the token has already expired.
    assert_eq!(sent(&over).await.1, "Bearer t2");
    // Requests in quick succession reuse the token even if it has expired.
    assert_eq!(sent(&over).await.1, "Bearer t2");
    pass(AGAIN / 2).await;
    assert_eq!(sent(&over).await.1, "Bearer t2");
    pass(AGAIN / 2).await;
    let (third, text) = sent(&over).await;
    assert_eq!(text, "Bearer t3");
    // A rejection right after a run does not run it again.
    assert!(!over.refused(&third).await);
    assert_eq!(lines(&runs), 3);
    let lasting = open("2100-01-01T00:00:00Z");
    assert_eq!(sent(&lasting).await.1, "Bearer t4");
    pass(AGAIN).await;
    let (fourth, text) = sent(&lasting).await;
    assert_eq!(text, "Bearer t4");
    // Any number of rejected requests cause one run.
    pass(AGAIN).await;
    for _ in 0..10 {
        assert!(lasting.refused(&fourth).await);
    }
    let (fifth, text) = sent(&lasting).await;
    assert_eq!(text, "Bearer t5");
    assert!(!lasting.refused(&fifth).await);
    assert_eq!(lines(&runs), 5);
}

/// kube's signer of tokens that expire does not accept one that does not.
#[tokio::test]
async fn plugins_may_cease_to_print_when_tokens_expire() {
    let dir = tempfile::tempdir().expect("a directory");
    let runs = dir.path().join("runs");
    let script = format!(
        r#"echo >> {runs}; n=$(wc -l < {runs}); [ $n -gt 2 ] || end=',"expirationTimestamp":"2001-01-01T00:00:00Z"'
        printf '{HEAD}{{"token":"t%s"%s}}}}' $n "$end""#,
        runs = runs.display()
    );
    let identity = plain(plugin(&script)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(sent(&identity).await.1, "Bearer t2");
    pass(AGAIN).await;
    assert!(identity.current().await.is_err());
    assert!(identity.current().await.is_err());
    assert_eq!(lines(&runs), 3);
    pass(AGAIN).await;
    assert_eq!(sent(&identity).await.1, "Bearer t4");
}

#[tokio::test]
async fn a_plugin_that_fails_runs_once_for_all_that_wait() {
    let dir = tempfile::tempdir().expect("a directory");
    let runs = dir.path().join("runs");
    let script = format!("echo >> {}; exit 1", runs.display());
    let identity = plain(plugin(&script)).unwrap_or_else(|error| panic!("{error}"));
    for _ in 0..10 {
        assert!(identity.current().await.is_err());
    }
    assert_eq!(lines(&runs), 1);
}

#[tokio::test]
async fn a_plugin_that_hangs_is_not_started_twice() {
    let dir = tempfile::tempdir().expect("a directory");
    let (runs, go) = (dir.path().join("runs"), dir.path().join("go"));
    let mkfifo = std::process::Command::new("mkfifo").arg(&go).status().expect("mkfifo");
    assert!(mkfifo.success());
    let script = format!(
        "echo >> {}; read line < {}; echo '{HEAD}{{\"token\":\"late\"}}}}'",
        runs.display(),
        go.display()
    );
    let identity = plain(plugin(&script)).unwrap_or_else(|error| panic!("{error}"));
    // This request is cancelled.
    let given_up = timeout(Duration::from_millis(1), identity.current()).await;
    assert!(given_up.is_err());
    fs::write(&go, "\n").expect("written");
    assert_eq!(sent(&identity).await.1, "Bearer late");
    assert_eq!(lines(&runs), 1);
}

/// Writes a new self-signed certificate to `crt` and its key to `key`.
fn issue(dir: &Path, name: &str) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("a name");
    let certificate = certificate.self_signed(&key).expect("a certificate");
    fs::write(dir.join("crt"), certificate.pem()).expect("written");
    fs::write(dir.join("key"), key.serialize_pem()).expect("written");
}

#[tokio::test]
async fn certificates_and_authorities_rotate() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    issue(dir, "one");
    let ca = dir.join("ca");
    fs::copy(dir.join("crt"), &ca).expect("copied");
    fs::write(dir.join("token"), "one").expect("written");
    // Beside a certificate no plugin is run.
    let user = AuthInfo {
        client_certificate: text(&dir.join("crt")),
        client_key: text(&dir.join("key")),
        ..plugin("exit 1")
    };
    let cluster = Cluster { certificate_authority: text(&ca), ..Cluster::default() };
    let other = identity("https://a", cluster, user).unwrap_or_else(|error| panic!("{error}"));
    let tls = sent(&other).await.0.tls.expect("over TLS");
    assert!(chain(&tls.config).is_some());
    let cluster = Cluster { certificate_authority: text(&ca), ..Cluster::default() };
    let user = AuthInfo {
        client_certificate: text(&dir.join("crt")),
        client_key: text(&dir.join("key")),
        token_file: text(&dir.join("token")),
        ..AuthInfo::default()
    };
    let identity = identity("https://a", cluster, user).unwrap_or_else(|error| panic!("{error}"));
    let generation = async || {
        let tls = sent(&identity).await.0.tls.expect("over TLS");
        (tls.generation, chain(&tls.config).expect("a certificate"))
    };
    let (first, certificate) = generation().await;
    // A new token does not change the TLS configuration.
    fs::write(dir.join("token"), "another").expect("written");
    assert_eq!(sent(&identity).await.1, "Bearer another");
    assert_eq!(generation().await, (first, certificate.clone()));
    // The certificate is replaced before its key.
    let key = fs::read(dir.join("key")).expect("readable");
    issue(dir, "another");
    let next = fs::read(dir.join("key")).expect("readable");
    fs::write(dir.join("key"), key).expect("written");
    assert_eq!(generation().await, (first, certificate.clone()));
    fs::write(dir.join("key"), next).expect("written");
    let (second, changed) = generation().await;
    assert_eq!(second, first + 1);
    assert_ne!(changed, certificate);
    let (before, _) = sent(&identity).await;
    fs::copy(dir.join("crt"), &ca).expect("copied");
    assert!(identity.refused(&before).await);
    assert_eq!(generation().await, (first + 2, changed.clone()));
    // A new certificate is used as soon as all files can be read.
    let away = dir.join("away");
    fs::rename(&ca, &away).expect("renamed");
    issue(dir, "third");
    assert_eq!(generation().await, (first + 2, changed.clone()));
    fs::rename(&away, &ca).expect("renamed");
    let (fourth, third) = generation().await;
    assert_eq!(fourth, first + 3);
    assert_ne!(third, changed);
    // A file without a certificate is ignored, and a new token does not wait for one with.
    fs::write(&ca, "").expect("written");
    assert_eq!(generation().await, (first + 3, third.clone()));
    fs::write(dir.join("token"), "last").expect("written");
    assert_eq!(sent(&identity).await.1, "Bearer last");
    fs::copy(dir.join("crt"), &ca).expect("copied");
    assert_eq!(generation().await, (first + 4, third));
    assert_eq!(sent(&identity).await.1, "Bearer last");
}

/// Returns the script of a plugin that prints this certificate and its key, after some other commands.
fn printing(dir: &Path, certificate: &str, first: &str) -> String {
    format!(
        r#"cd {}; {first} e() {{ awk '{{printf "%s\\n", $0}}' "$1"; }}
        printf '%s' '{HEAD}{{"clientCertificateData":"'"$(e {certificate})"'","clientKeyData":"'"$(e key)"'"}}}}'"#,
        dir.display()
    )
}

#[tokio::test]
async fn plugins_print_certificates() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    issue(dir, "one");
    let (runs, script) = (dir.join("runs"), printing(dir, "crt", "echo >> runs;"));
    let cluster = Cluster { certificate_authority: text(&dir.join("crt")), ..Cluster::default() };
    let identity =
        identity("https://a", cluster, plugin(&script)).unwrap_or_else(|error| panic!("{error}"));
    let (before, authorization) = sent(&identity).await;
    assert_eq!(authorization, "");
    let shown = chain(&before.tls.as_ref().expect("over TLS").config).expect("a certificate");
    assert!(end(&shown).is_some_and(|end| end > Timestamp::now()));
    // kube runs it twice: for a token, and then for the certificate.
    assert_eq!(lines(&runs), 2);
    assert_eq!(sent(&identity).await.0.headers, before.headers);
    pass(AGAIN).await;
    // Later it runs once per rejection.
    assert!(!identity.refused(&before).await);
    assert_eq!(lines(&runs), 3);
    pass(AGAIN).await;
    issue(dir, "another");
    assert!(identity.refused(&before).await);
    assert_eq!(lines(&runs), 4);
}

/// A plugin may keep a certificate until it has expired, or the clock may be wrong.
#[tokio::test]
async fn plugins_that_print_expired_certificates_run_once_in_a_while() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut certificate = rcgen::CertificateParams::new(vec!["one".to_owned()]).expect("a name");
    certificate.not_after = rcgen::date_time_ymd(2001, 1, 1);
    let certificate = certificate.self_signed(&key).expect("a certificate");
    fs::write(dir.join("crt"), certificate.pem()).expect("written");
    fs::write(dir.join("key"), key.serialize_pem()).expect("written");
    let (runs, script) = (dir.join("runs"), printing(dir, "crt", "echo >> runs;"));
    let cluster = Cluster { insecure_skip_tls_verify: Some(true), ..Cluster::default() };
    let identity =
        identity("https://a", cluster, plugin(&script)).unwrap_or_else(|error| panic!("{error}"));
    // kube runs it twice: for a token, and then for the certificate.
    for _ in 0..5 {
        let (now, _) = sent(&identity).await;
        assert!(chain(&now.tls.expect("over TLS").config).is_some());
        assert_eq!(lines(&runs), 2);
    }
    pass(AGAIN).await;
    for _ in 0..5 {
        sent(&identity).await;
        assert_eq!(lines(&runs), 3);
    }
}

#[tokio::test]
async fn plugins_run_while_the_authorities_are_unusable() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    issue(dir, "one");
    let ca = dir.join("crt");
    let cluster = || Cluster { certificate_authority: text(&ca), ..Cluster::default() };
    let open = |user| identity("https://a", cluster(), user).unwrap_or_else(|e| panic!("{e}"));
    let of_token = open(numbering(&dir.join("runs"), "2100-01-01T00:00:00Z"));
    let certificate = fs::read(&ca).expect("readable");
    fs::copy(&ca, dir.join("printed")).expect("copied");
    let of_certificate = open(plugin(&printing(dir, "printed", "")));
    assert_eq!(sent(&of_token).await.1, "Bearer t1");
    let (before, _) = sent(&of_certificate).await;
    fs::write(&ca, "").expect("written");
    pass(AGAIN).await;
    assert_eq!(sent(&of_token).await.1, "Bearer t1");
    let (after, _) = sent(&of_certificate).await;
    let generation = |current: &Current| current.tls.as_ref().map(|built| built.generation);
    assert_eq!(generation(&after), generation(&before));
    fs::write(&ca, [&certificate[..], &certificate].concat()).expect("written");
    assert!(generation(&sent(&of_certificate).await.0) > generation(&before));
}

/// A run that was started with the former authorities does not hide the new ones.
#[tokio::test]
async fn plugins_run_again_if_files_change_meanwhile() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    issue(dir, "one");
    let (ca, go) = (dir.join("ca"), dir.join("go"));
    fs::copy(dir.join("crt"), &ca).expect("copied");
    let mkfifo = std::process::Command::new("mkfifo").arg(&go).status().expect("mkfifo");
    assert!(mkfifo.success());
    let waits = "if [ -e wait ]; then echo > begun; read line < go; fi;";
    let cluster = Cluster { certificate_authority: text(&ca), ..Cluster::default() };
    let user = plugin(&printing(dir, "crt", waits));
    let identity = identity("https://a", cluster, user).unwrap_or_else(|error| panic!("{error}"));
    let (before, _) = sent(&identity).await;
    fs::write(dir.join("wait"), "").expect("written");
    pass(AGAIN).await;
    let refused = identity.refused(&before);
    let given_up = tokio::time::timeout(Duration::from_millis(1), refused).await;
    assert!(given_up.is_err());
    while !dir.join("begun").exists() {
        std::thread::yield_now();
    }
    fs::remove_file(dir.join("wait")).expect("removed");
    fs::write(&ca, fs::read(dir.join("crt")).expect("readable").repeat(2)).expect("written");
    // Waits until the plugin reads.
    fs::write(&go, "\n").expect("written");
    let generation = |current: &Current| current.tls.as_ref().map(|built| built.generation);
    assert_eq!(generation(&sent(&identity).await.0), generation(&before));
    assert!(generation(&sent(&identity).await.0) > generation(&before));
}

/// Sends a valid token of an OpenID provider, and reports one that has expired and cannot be refreshed.
#[tokio::test]
async fn openid() {
    let provider = |end: i64| {
        let claims = BASE64_URL_SAFE_NO_PAD.encode(format!("{{\"exp\":{end}}}"));
        let token = format!("secret.{claims}.x");
        let config = [("id-token".to_owned(), token.clone())].into();
        let provider = AuthProviderConfig { name: "oidc".to_owned(), config, ..Default::default() };
        let user = AuthInfo { auth_provider: Some(provider), ..AuthInfo::default() };
        (plain(user).unwrap_or_else(|error| panic!("{error}")), token)
    };
    let (identity, token) = provider(4_102_444_800);
    assert_eq!(sent(&identity).await.1, format!("Bearer {token}"));
    let (identity, _) = provider(978_307_200);
    let error = identity.current().await.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("idp-issuer-url") && !error.contains("secret"), "{error}");
}

/// A provider that accepts a request and never answers is asked again, with the tokens that it has refreshed before.
#[tokio::test(start_paused = true)]
async fn requests_to_providers_that_hang_are_given_up() {
    let config = |name: &str, key: &str| {
        let settings = [(key.to_owned(), "x".to_owned())].into();
        let provider =
            AuthProviderConfig { name: name.to_owned(), config: settings, ..Default::default() };
        let mut config = ::kube::Config::new("http://a".parse().expect("a URL"));
        config.auth_info.auth_provider = Some(provider);
        config
    };
    let call = |config| {
        let signer = Signer::new(service_fn(|_| pending()));
        timeout(Duration::from_secs(60), sign(config, Some(signer), false, false))
    };
    for name in ["oidc", "gcp"] {
        let (signer, result) = call(config(name, "scopes")).await.expect("a result");
        assert!(signer.is_some());
        let error = result.err().map(|error| error.to_string()).unwrap_or_default();
        let expected = format!("credentials: no answer from the {name} provider within 20 s");
        assert_eq!(error, expected);
    }
    // Nobody starts a command again that still runs.
    assert!(call(config("gcp", "cmd-path")).await.is_err());
    let mut with_plugin = config("oidc", "scopes");
    with_plugin.auth_info = plugin("");
    assert!(call(with_plugin).await.is_err());
}
