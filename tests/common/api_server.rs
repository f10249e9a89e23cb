//! A stand-in for an API server that answers fixed paths and forwards others, as its proxy to pods does.
#![allow(dead_code, reason = "every test binary uses a part of it")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::common::get;

/// The answer to requests for a path.
#[derive(Clone)]
enum Answer {
    Fixed(u16, String),
    Forwarded(SocketAddr),
}

#[derive(Default)]
struct State {
    answers: BTreeMap<String, Answer>,
    requests: Vec<String>,
    bodies: Vec<String>,
}

/// The server. Answers until the test ends.
pub struct ApiServer {
    state: Arc<Mutex<State>>,
    folder: tempfile::TempDir,
}

impl ApiServer {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let folder = tempfile::tempdir().expect("folder");
        let server = format!("http://{}", listener.local_addr().expect("address"));
        let kubeconfig = json!({
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"token": "planted-kubeconfig-token"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        });
        std::fs::write(folder.path().join("config"), kubeconfig.to_string()).expect("write");
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || answer(client, &shared));
            }
        });
        Self { state, folder }
    }

    /// Returns the path of a kubeconfig for it.
    pub fn kubeconfig(&self) -> std::path::PathBuf {
        Path::join(self.folder.path(), "config")
    }

    /// Answers requests for a path, and for those below it, with an object or a `Status`.
    pub fn serve(&self, path: &str, object: Value) {
        let code = object["code"].as_u64().unwrap_or(200).try_into().expect("a status");
        let answer = Answer::Fixed(code, object.to_string());
        self.state.lock().expect("state").answers.insert(path.to_owned(), answer);
    }

    /// Forwards requests below a path to an address, without the path.
    pub fn forward(&self, path: &str, to: SocketAddr) {
        self.state.lock().expect("state").answers.insert(path.to_owned(), Answer::Forwarded(to));
    }

    /// Returns the paths that are answered.
    pub fn paths(&self) -> Vec<String> {
        self.state.lock().expect("state").answers.keys().cloned().collect()
    }

    /// Returns the requested paths so far.
    pub fn requests(&self) -> Vec<String> {
        self.state.lock().expect("state").requests.clone()
    }

    /// Returns the bodies of the requests so far that have one.
    pub fn bodies(&self) -> Vec<String> {
        self.state.lock().expect("state").bodies.clone()
    }
}

fn answer(mut client: TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(client.try_clone().expect("clone"));
    let mut lines = reader.by_ref().lines();
    let Some(Ok(line)) = lines.next() else { return };
    let headers = lines.map_while(Result::ok).take_while(|header| !header.is_empty());
    let length = headers.fold(0, |length, header| match header.split_once(": ") {
        Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
            value.parse().expect("a length")
        }
        _ => length,
    });
    let mut body = String::new();
    reader.by_ref().take(length).read_to_string(&mut body).expect("a body");
    let target = line.split(' ').nth(1).expect("a target").to_owned();
    let path = target.split('?').next().expect("a path").to_owned();
    let found = {
        let mut state = state.lock().expect("state");
        state.requests.push(target.clone());
        state.bodies.extend(Some(body).filter(|body| !body.is_empty()));
        let exact = state.answers.get_key_value(&path);
        let mut below = state
            .answers
            .iter()
            .filter(|(known, _)| known.ends_with("/proxy") && path.starts_with(*known));
        exact.or_else(|| below.next()).map(|(path, answer)| (path.clone(), answer.clone()))
    };
    let asks = |parameter| target.contains(parameter);
    let (code, body) = match found {
        // As servers before 1.27; a watch has no events, and lasts until the client ends it.
        Some((_, Answer::Fixed(200, _))) if asks("sendInitialEvents=true") => {
            (422, forbidden("no initial events").to_string().into_bytes())
        }
        Some((_, Answer::Fixed(200, _))) if asks("watch=true") => {
            let head = b"HTTP/1.1 200 X\r\nContent-Type: application/json\r\n\r\n";
            let _ = client.write_all(head).map(|()| reader.read(&mut [0]));
            return;
        }
        Some((_, Answer::Fixed(code, text))) => (code, text.into_bytes()),
        Some((below, Answer::Forwarded(to))) => {
            let response = get(to, target.strip_prefix(&below).expect("a path below it"));
            (response.status, response.body)
        }
        None => {
            let status =
                json!({"kind": "Status", "apiVersion": "v1", "message": "not found", "code": 404});
            (404, status.to_string().into_bytes())
        }
    };
    let kind = if body.starts_with(b"{") { "application/json" } else { "text/plain" };
    let head = format!(
        "HTTP/1.1 {code} X\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = client.write_all(head.as_bytes()).and_then(|()| client.write_all(&body));
}

/// Returns a list with these objects.
pub fn list(items: &[Value]) -> Value {
    json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items})
}

/// The kind Widget of the group example.io, as the only custom resource of a server.
impl ApiServer {
    /// Serves the definition.
    pub fn define_widgets(&self) {
        let names = json!({"plural": "widgets", "kind": "Widget"});
        let versions = json!([{"name": "v1", "served": true}]);
        let spec = json!({"group": "example.io", "names": names, "scope": "Namespaced", "versions": versions});
        self.serve_one(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            "CustomResourceDefinition",
            &json!({"metadata": {"name": "widgets.example.io", "uid": "d"}, "spec": spec}),
        );
    }

    /// Serves a list of one object at a path.
    pub fn serve_one(&self, path: &str, kind: &str, object: &Value) {
        let mut list = list(std::slice::from_ref(object));
        list["kind"] = format!("{kind}List").into();
        self.serve(path, list);
    }
}

/// Returns the refusal of a request.
pub fn forbidden(message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "reason": "Forbidden", "code": 403, "message": message})
}

/// Returns a Deployment in the namespace `monitoring`.
pub fn deployment(name: &str, image: &str, args: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": "monitoring", "name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": image, "args": args}]},
            },
        },
    })
}

/// Returns a running pod in the namespace `monitoring`.
pub fn pod(name: &str, args: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "monitoring", "name": name},
        "spec": {"containers": [{
            "name": "main",
            "image": "corp/kstatd:1",
            "args": args,
            "env": [{"name": "PLANTED", "value": "planted-environment-value"}],
        }]},
        "status": {"phase": "Running"},
    })
}
