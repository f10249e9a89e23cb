//! A test double of the kubelet: the summary and the pods of `tests/data/kubelet`, generated with the real types, and
//! invalid responses.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::Value;

/// The response to a summary request.
#[derive(Clone, Copy)]
pub enum Answer {
    Usual,
    Status(u16),
    /// Another text.
    Text(&'static str),
    /// This many bytes of the body, then the end of the connection.
    Cut(usize),
    /// The body up to this text.
    CutAfter(&'static str),
    /// No response.
    Silent,
    /// The body up to this text, then silence.
    StalledAfter(&'static str),
}

struct State {
    answer: Answer,
    summary: Value,
    pods: Value,
    /// Connections that stay silent.
    stalled: Vec<TcpStream>,
}

/// A kubelet. Its threads end with the test process.
pub struct Kubelet {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Kubelet {
    pub fn start() -> Self {
        let read = |name: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kubelet").join(name);
            std::fs::read_to_string(&path)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        let json = |name| serde_json::from_str(&read(name)).expect("JSON");
        let (summary, pods) = (json("summary.json"), json("pods.json"));
        let (answer, stalled) = (Answer::Usual, Vec::new());
        let state = Arc::new(Mutex::new(State { answer, summary, pods, stalled }));
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || drop(serve(stream, &shared)));
            }
        });
        Self { address, state }
    }

    /// The flag with the kubelet's URL.
    pub fn flag(&self) -> String {
        format!("--kubelet={}", self.url())
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn set(&self, answer: Answer) {
        self.state.lock().expect("state").answer = answer;
    }

    pub fn edit(&self, edit: impl FnOnce(&mut Value)) {
        edit(&mut self.state.lock().expect("state").summary);
    }

    pub fn edit_pods(&self, edit: impl FnOnce(&mut Value)) {
        edit(&mut self.state.lock().expect("state").pods);
    }
}

fn serve(mut stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut path = String::new();
        if reader.read_line(&mut path)? == 0 {
            return Ok(());
        }
        let mut line = String::new();
        while reader.read_line(&mut line)? > 2 {
            line.clear();
        }
        let mut state = state.lock().expect("state");
        // Also as an API server.
        let are_pods = ["GET /pods ", "GET /api/v1/pods?"].iter().any(|of| path.starts_with(of));
        let (status, body, shown) = if are_pods {
            (200, state.pods.to_string(), None)
        } else {
            let body = state.summary.to_string();
            let until = |text: &str| body.find(text).map(|at| at + text.len());
            match state.answer {
                Answer::Usual => (200, body, None),
                Answer::Status(status) => (status, String::new(), None),
                Answer::Text(text) => (200, text.to_owned(), None),
                Answer::Cut(length) => (200, body, Some((length, true))),
                Answer::CutAfter(text) => (200, body.clone(), until(text).map(|at| (at, true))),
                Answer::Silent => {
                    state.stalled.push(stream);
                    return Ok(());
                }
                Answer::StalledAfter(text) => {
                    (200, body.clone(), until(text).map(|at| (at, false)))
                }
            }
        };
        drop(state);
        write!(
            stream,
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )?;
        match shown {
            None => stream.write_all(body.as_bytes())?,
            Some((length, cut)) => {
                stream.write_all(&body.as_bytes()[..length])?;
                if !cut {
                    // Until the client disconnects.
                    let mut rest = String::new();
                    reader.read_line(&mut rest)?;
                }
                return Ok(());
            }
        }
    }
}
