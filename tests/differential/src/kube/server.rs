//! An API server with any objects, for both sides. Watches end on demand with a bookmark, so that a client that watches
//! again is known to have processed every event.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::objects;

/// An object, and the plural name of its kind.
#[derive(Clone, Debug)]
pub struct Placed {
    pub resource: String,
    pub object: Value,
}

/// The change of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Set,
    Delete,
}

struct Event {
    version: u64,
    kind: &'static str,
    placed: Placed,
}

#[derive(Default)]
struct State {
    objects: Vec<Placed>,
    events: Vec<Event>,
    version: u64,
    /// Watches end once they have sent all events up to here.
    cut: u64,
    /// The version from which each side has begun its latest watch of a path.
    watched: [BTreeMap<String, u64>; 2],
    is_closed: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server. Dropping it ends its watches.
pub struct ApiServer {
    shared: Arc<Shared>,
    ports: [u16; 2],
}

fn uid(object: &Value) -> &Value {
    object.pointer("/metadata/uid").unwrap_or(&Value::Null)
}

fn field<'a>(object: &'a Value, path: &str) -> &'a str {
    let pointer = format!("/{}", path.replace('.', "/"));
    object.pointer(&pointer).and_then(Value::as_str).unwrap_or_default()
}

impl ApiServer {
    /// Starts it with these objects, at a port for each side.
    pub fn start(objects: Vec<Placed>) -> Result<Self> {
        let state = State { objects, version: 1_000_000, ..State::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let mut ports = [0; 2];
        for (side, port) in ports.iter_mut().enumerate() {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            *port = listener.local_addr()?.port();
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                for client in listener.incoming().map_while(Result::ok) {
                    if shared.lock().is_closed {
                        return;
                    }
                    let shared = Arc::clone(&shared);
                    // A client that disconnects ends only its own thread.
                    std::thread::spawn(move || drop(serve(client, side, &shared)));
                }
            });
        }
        Ok(Self { shared, ports })
    }

    /// Returns the URL for a side.
    pub fn url(&self, side: usize) -> String {
        format!("http://127.0.0.1:{}", self.ports.get(side).copied().unwrap_or_default())
    }

    /// Returns the present objects.
    pub fn objects(&self) -> Vec<Placed> {
        self.shared.lock().objects.clone()
    }

    /// Changes objects, and ends all watches after their events.
    pub fn change(&self, changes: &[(Change, Placed)]) {
        let mut state = self.shared.lock();
        for (change, placed) in changes {
            let mut placed = placed.clone();
            let same = |other: &Placed| {
                other.resource == placed.resource && uid(&other.object) == uid(&placed.object)
            };
            let known = state.objects.iter().position(same);
            state.version += 1;
            let version = state.version;
            if let Some(metadata) = placed.object.get_mut("metadata").and_then(Value::as_object_mut)
            {
                metadata.insert("resourceVersion".to_owned(), version.to_string().into());
            }
            let kind = match (change, known) {
                (Change::Delete, None) => continue,
                (Change::Delete, Some(at)) => {
                    state.objects.remove(at);
                    "DELETED"
                }
                (Change::Set, None) => {
                    state.objects.push(placed.clone());
                    "ADDED"
                }
                (Change::Set, Some(at)) => {
                    if let Some(place) = state.objects.get_mut(at) {
                        *place = placed.clone();
                    }
                    "MODIFIED"
                }
            };
            state.events.push(Event { version, kind, placed });
        }
        state.version += 1;
        state.cut = state.version;
        self.shared.changed.notify_all();
    }

    /// Waits until both sides watch each resource from the present version.
    pub fn wait_for_watches(
        &self,
        resources: &[(String, usize)],
        patience: Duration,
    ) -> Result<()> {
        let deadline = Instant::now() + patience;
        let mut state = self.shared.lock();
        loop {
            let is_missing = |side: &BTreeMap<String, u64>, (resource, count): &(String, usize)| {
                let ends = format!("/{resource}");
                let current = side.iter().filter(|(path, from)| {
                    path.split('?').next().is_some_and(|path| path.ends_with(&ends))
                        && **from >= state.cut
                });
                current.count() < *count
            };
            let missing = state.watched.iter().enumerate().find_map(|(side, watched)| {
                resources
                    .iter()
                    .find(|wanted| is_missing(watched, wanted))
                    .map(|wanted| (side, wanted))
            });
            let Some((side, (resource, count))) = missing else { return Ok(()) };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let watched = state.watched.get(side);
                bail!(
                    "side {side} lacks a watch of {count} {resource} from {}: {watched:?}",
                    state.cut
                );
            }
            let next = self.shared.changed.wait_timeout(state, left);
            state = next.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.changed.notify_all();
        // Wakes the listeners.
        for port in self.ports {
            drop(TcpStream::connect((Ipv4Addr::LOCALHOST, port)));
        }
    }
}

/// A list or watch request.
struct Request {
    /// The group and version of a custom resource, which may have several.
    api: Option<String>,
    resource: String,
    namespace: Option<String>,
    selectors: Vec<(String, bool, String)>,
    query: BTreeMap<String, String>,
}

fn decoded(text: &str) -> String {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        out.push(match byte {
            b'%' => match (digit(), digit()) {
                (Some(high), Some(low)) => u8::try_from(high * 16 + low).unwrap_or(b'?'),
                _ => b'?',
            },
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8_lossy(&out).into_owned()
}

impl Request {
    fn parse(target: &str) -> Option<Self> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query: BTreeMap<String, String> = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (decoded(name), decoded(value)))
            .collect();
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let (api, rest) = match parts.as_slice() {
            ["api", _, rest @ ..] => (None, rest),
            ["apis", group, version, rest @ ..] => (Some(format!("{group}/{version}")), rest),
            _ => return None,
        };
        let (namespace, resource) = match rest {
            [resource] => (None, resource),
            ["namespaces", namespace, resource] => (Some((*namespace).to_owned()), resource),
            _ => return None,
        };
        let selectors = query.get("fieldSelector").map(String::as_str).unwrap_or_default();
        let selectors = selectors.split(',').filter_map(|term| {
            let (name, value) = term.split_once('=')?;
            let (name, equal) = name.strip_suffix('!').map_or((name, true), |name| (name, false));
            Some((name.to_owned(), equal, value.trim_start_matches('=').to_owned()))
        });
        let selectors = selectors.collect();
        let api = api.filter(|_| objects::kind_of(resource).0.is_empty());
        Some(Self { api, resource: (*resource).to_owned(), namespace, selectors, query })
    }

    fn takes(&self, placed: &Placed) -> bool {
        let is_selected = |(name, equal, value): &(String, bool, String)| {
            (field(&placed.object, name) == value) == *equal
        };
        placed.resource == self.resource
            && self
                .namespace
                .as_ref()
                .is_none_or(|own| field(&placed.object, "metadata.namespace") == own)
            && self.selectors.iter().all(is_selected)
    }

    /// Returns an object in the requested version.
    fn versioned(&self, object: &Value) -> Value {
        let mut object = object.clone();
        if let Some(api) = &self.api {
            object["apiVersion"] = api.as_str().into();
        }
        object
    }

    /// Returns the API version and kind of the objects.
    fn kind(&self) -> (String, &'static str) {
        let (api, kind) = objects::kind_of(&self.resource);
        (self.api.clone().unwrap_or(api), kind)
    }

    fn number(&self, name: &str) -> u64 {
        self.query.get(name).and_then(|text| text.parse().ok()).unwrap_or_default()
    }
}

fn respond(client: &mut TcpStream, status: &str, body: &Value) -> io::Result<()> {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes())?;
    client.write_all(body.as_bytes())
}

fn serve(mut client: TcpStream, side: usize, shared: &Shared) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut lines = BufReader::new(client.try_clone()?).lines();
    while let Some(line) = lines.next() {
        let line = line?;
        let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
        for header in lines.by_ref() {
            if header?.is_empty() {
                break;
            }
        }
        if target.split('?').next() == Some("/version") {
            respond(
                &mut client,
                "200 OK",
                &json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0"}),
            )?;
            continue;
        }
        match Request::parse(&target) {
            None => respond(&mut client, "404 Not Found", &status(404, "NotFound"))?,
            Some(request)
                if request
                    .query
                    .get("watch")
                    .is_some_and(|watch| watch != "false" && watch != "0") =>
            {
                // An API server without streaming lists.
                if request.query.contains_key("sendInitialEvents") {
                    respond(&mut client, "422 Unprocessable Entity", &status(422, "Invalid"))?;
                    continue;
                }
                let path = match request.selectors.is_empty() {
                    true => target.split('?').next().unwrap_or_default().to_owned(),
                    false => {
                        let path = target.split('?').next().unwrap_or_default();
                        format!("{path}?{:?}", request.selectors)
                    }
                };
                watch(&mut client, side, &request, path, shared)?;
            }
            Some(request) => {
                let state = shared.lock();
                let mut items: Vec<Value> = state
                    .objects
                    .iter()
                    .filter(|placed| request.takes(placed))
                    .map(|placed| request.versioned(&placed.object))
                    .collect();
                let mut metadata = json!({"resourceVersion": state.version.to_string()});
                let limit = usize::try_from(request.number("limit")).unwrap_or_default();
                if limit > 0 && items.len() > limit {
                    items.truncate(limit);
                    if let Some(metadata) = metadata.as_object_mut() {
                        metadata.insert("continue".to_owned(), "more".into());
                    }
                }
                let (api, kind) = request.kind();
                let kind = format!("{kind}List");
                let list =
                    json!({"kind": kind, "apiVersion": api, "metadata": metadata, "items": items});
                drop(state);
                respond(&mut client, "200 OK", &list)?;
            }
        }
    }
    Ok(())
}

fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code})
}

fn watch(
    client: &mut TcpStream,
    side: usize,
    request: &Request,
    path: String,
    shared: &Shared,
) -> io::Result<()> {
    let mut sent = request.number("resourceVersion");
    client.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
    )?;
    let mut state = shared.lock();
    let begins = sent;
    if let Some(watched) = state.watched.get_mut(side) {
        watched.insert(path, begins);
    }
    shared.changed.notify_all();
    loop {
        let mut out = String::new();
        let mut add = |event: Value| {
            let line = format!("{event}\n");
            out.push_str(&format!("{:x}\r\n{line}\r\n", line.len()));
        };
        for event in state.events.iter().filter(|event| event.version > sent) {
            if request.takes(&event.placed) {
                let object = request.versioned(&event.placed.object);
                add(json!({"type": event.kind, "object": object}));
            }
        }
        sent = state.version;
        let ends = state.cut > begins || state.is_closed;
        if ends {
            let (api, kind) = request.kind();
            let metadata = json!({"resourceVersion": sent.to_string()});
            let object = json!({"kind": kind, "apiVersion": api, "metadata": metadata});
            add(json!({"type": "BOOKMARK", "object": object}));
            out.push_str("0\r\n\r\n");
        }
        drop(state);
        client.write_all(out.as_bytes())?;
        if ends {
            return Ok(());
        }
        let wait = shared.changed.wait_timeout(shared.lock(), Duration::from_secs(1));
        state = wait.unwrap_or_else(PoisonError::into_inner).0;
    }
}
