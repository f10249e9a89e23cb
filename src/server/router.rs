//! Paths to handlers, with the rules of Go's `ServeMux` that clients of the originals may rely on:
//! uncleaned paths are redirected (307), `/x/` serves its whole subtree and `/x` redirects to it,
//! a method without a handler is not found.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use hyper::Method;
use hyper::header::CONTENT_LENGTH;
use hyper::http::request::Parts;

use super::authorisation::Authorisation;
use super::connection::Peer;
use super::query;
use super::response::{self, Response};
use super::web_config::{Guard, WebConfig};

/// What a handler gets: the head of a request. Bodies are never read.
#[derive(Debug)]
pub struct Call {
    /// Method, URI and headers.
    pub head: Parts,
    /// The decoded path.
    pub path: String,
}

impl Call {
    /// The raw query string, empty when there is none.
    pub fn query(&self) -> &str {
        self.head.uri.query().unwrap_or_default()
    }

    /// The first value of a header, empty when it is absent or not text.
    pub fn header(&self, name: hyper::header::HeaderName) -> &str {
        self.head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// All values of a header that are text.
    pub fn headers(&self, name: hyper::header::HeaderName) -> impl Iterator<Item = &str> {
        self.head.headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok())
    }
}

/// Which methods a route answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Methods {
    /// Every method.
    Any,
    /// `GET` and `HEAD`.
    Read,
}

type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;
type Handler = Arc<dyn Fn(Call) -> Answering + Send + Sync>;

/// Paths that anybody may ask: whether the process lives, and the page with links to the others. A new route is none of
/// them unless it is named here.
const OPEN: [&str; 4] = ["/", "/healthz", "/livez", "/readyz"];

/// What a stranger is told.
const STRANGER: &str = "Profiles are for this host (kubectl port-forward comes from it) and for those whom --auth-filter or users \
    of a web configuration let in; --profiles=everybody opens them\n";

/// The routes of one listener.
#[derive(Default)]
pub struct Router {
    routes: Vec<Route>,
    guard: Option<Guard>,
    authorisation: Option<Arc<Authorisation>>,
}

struct Route {
    path: String,
    methods: Methods,
    handler: Handler,
    /// Whether it says something that not everybody may know.
    protected: bool,
    /// Whether its answer can be limited to namespaces.
    by_namespace: bool,
    /// Whether strangers get none.
    kept: bool,
}

impl Router {
    /// Answers `path` with a handler that does not wait. A path that ends in `/` stands for its whole
    /// subtree, except `/`, which stands for itself (see [`Router::all`]).
    pub fn at(
        self,
        path: &str,
        methods: Methods,
        handler: impl Fn(&Call) -> Response + Send + Sync + 'static,
    ) -> Self {
        self.at_async(path, methods, move |call| ready(handler(&call)))
    }

    /// Answers `path` with a handler that may wait.
    pub fn at_async<F>(
        mut self,
        path: &str,
        methods: Methods,
        handler: impl Fn(Call) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Response> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |call| Box::pin(handler(call)));
        let route = Route {
            path: path.to_owned(),
            methods,
            handler,
            protected: false,
            by_namespace: false,
            kept: false,
        };
        self.routes.push(route);
        self
    }

    /// The answer of the route that was added last can be limited to namespaces, and then be had by those who may see
    /// these: a filter reads the query as the handler does ([`query::namespaces`]).
    pub fn by_namespace(mut self) -> Self {
        if let Some(route) = self.routes.last_mut() {
            route.by_namespace = true;
        }
        self
    }

    /// Answers every path that no other route does.
    pub fn all(self, handler: impl Fn(&Call) -> Response + Send + Sync + 'static) -> Self {
        self.at("", Methods::Any, handler)
    }

    /// Adds the routes of `other`.
    pub fn merge(mut self, other: Router) -> Self {
        self.routes.extend(other.routes);
        self
    }

    /// Lets only those use what is not [`OPEN`] whom the filter admits. Every method
    /// is then asked about, so that none gets past the filter.
    pub fn for_the_authorised(mut self, authorisation: Option<Arc<Authorisation>>) -> Self {
        if authorisation.is_none() {
            return self;
        }
        for route in &mut self.routes {
            route.protected = !OPEN.contains(&route.path.as_str());
            if route.protected {
                route.methods = Methods::Any;
            }
        }
        self.authorisation = authorisation;
        self
    }

    /// Keeps what is below `prefix` from strangers: those who ask from another host and have not shown who they are. Who
    /// comes through `kubectl port-forward` asks from this host, and needed the right to it.
    pub fn kept_from_strangers(mut self, prefix: &str) -> Self {
        for route in self.routes.iter_mut().filter(|route| route.path.starts_with(prefix)) {
            route.kept = true;
        }
        self
    }

    /// Puts all routes behind a web configuration.
    pub fn behind(mut self, web: Option<Arc<WebConfig>>) -> Self {
        self.guard = web.map(Guard::new);
        self
    }

    /// The web configuration that stands before the routes.
    pub fn web(&self) -> Option<&Arc<WebConfig>> {
        self.guard.as_ref().map(Guard::config)
    }

    /// Answers one request.
    pub async fn dispatch(&self, head: Parts) -> Response {
        let is_head = head.method == Method::HEAD;
        let mut response = match &self.guard {
            None => self.answer(head, false).await,
            Some(guard) => match guard.admit(&head).await {
                Ok(headers) => headers.put(self.answer(head, headers.are_for_known()).await),
                Err(refusal) => *refusal,
            },
        };
        if is_head {
            // A body that was not written, because nobody would see it, says nothing about its length.
            let size = hyper::body::Body::size_hint(response.body()).exact();
            if let Some(size) = size.filter(|size| *size > 0) {
                response.headers_mut().insert(CONTENT_LENGTH, size.into());
            }
            response = response.map(super::body::Body::without_data);
        }
        response
    }

    /// Answers one who may ask, and who has shown who it is if it is `known`.
    async fn answer(&self, head: Parts, known: bool) -> Response {
        let raw = head.uri.path();
        if raw == "*" {
            let status = if head.method == Method::OPTIONS { 200 } else { 400 };
            return response::empty(status);
        }
        let Some(path) = query::decode_path(raw) else {
            return response::closing(400, "400 Bad Request");
        };
        let clean = query::clean(&path);
        if clean != path {
            return response::redirect(&head.method, &with_query(&clean, head.uri.query()));
        }
        let path = clean.into_owned();
        match self.find(&path, &head.method) {
            Found::Route(route) => {
                if let Some(filter) = self.authorisation.as_ref().filter(|_| route.protected)
                    && let Err(refusal) = filter.admit(&head, &path, route.by_namespace).await
                {
                    return *refusal;
                }
                if route.kept && !known && !route.protected && !is_of_this_host(&head) {
                    return response::error(403, STRANGER);
                }
                (route.handler)(Call { head, path }).await
            }
            Found::Subtree => {
                let target = with_query(&format!("{path}/"), head.uri.query());
                response::redirect(&head.method, &target)
            }
            Found::Nothing => response::not_found(),
        }
    }

    fn find(&self, path: &str, method: &Method) -> Found<'_> {
        let answers = |route: &&Route| match route.methods {
            Methods::Any => true,
            Methods::Read => matches!(*method, Method::GET | Method::HEAD),
        };
        let routes = || self.routes.iter().filter(answers);
        if let Some(route) = routes().find(|route| route.path == path) {
            return Found::Route(route);
        }
        let is_subtree = |route: &Route| route.path.len() > 1 && route.path.ends_with('/');
        let covers = |route: &&Route| {
            route.path.is_empty() || (is_subtree(route) && path.starts_with(&route.path))
        };
        let slash = |route: &Route| is_subtree(route) && route.path.strip_suffix('/') == Some(path);
        if routes().any(slash) {
            return Found::Subtree;
        }
        match routes().filter(covers).max_by_key(|route| route.path.len()) {
            Some(route) => Found::Route(route),
            None => Found::Nothing,
        }
    }
}

enum Found<'a> {
    Route(&'a Route),
    Subtree,
    Nothing,
}

/// Whether a request came from this host.
fn is_of_this_host(head: &Parts) -> bool {
    let address = head.extensions.get::<Peer>().and_then(Peer::address);
    address.is_some_and(|address| address.to_canonical().is_loopback())
}

fn with_query(path: &str, query: Option<&str>) -> String {
    let mut target = response::escape_path(path);
    if let Some(query) = query {
        target.push('?');
        target.push_str(query);
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn router() -> Router {
        let text = |text: &'static str| move |_: &Call| response::text(200, text);
        Router::default()
            .at("/", Methods::Any, text("root"))
            .at("/metrics", Methods::Any, text("metrics"))
            .at("/debug/pprof/", Methods::Read, text("index"))
            .at("/debug/pprof/heap", Methods::Read, text("heap"))
    }

    async fn ask(router: &Router, method: &str, uri: &str) -> (u16, String, String) {
        let request = Request::builder().method(method).uri(uri).body(()).expect("request");
        let response = router.dispatch(request.into_parts().0).await;
        let header = |name: &str| {
            response.headers().get(name).map_or("", |v| v.to_str().expect("text")).to_owned()
        };
        let (status, location) = (response.status().as_u16(), header("location"));
        let body = http_body_util::BodyExt::collect(response.into_body()).await.expect("body");
        (status, location, String::from_utf8(body.to_bytes().to_vec()).expect("UTF-8"))
    }

    #[tokio::test]
    async fn exact_subtree_and_missing() {
        let router = router();
        for (method, uri, status, body) in [
            ("GET", "/", 200, "root"),
            ("POST", "/metrics", 200, "metrics"),
            ("GET", "/%6detrics", 200, "metrics"),
            ("HEAD", "/metrics", 200, ""),
            ("GET", "/debug/pprof/", 200, "index"),
            ("GET", "/debug/pprof/x/y", 200, "index"),
            ("GET", "/debug/pprof/heap", 200, "heap"),
            ("POST", "/debug/pprof/heap", 404, "404 page not found\n"),
            ("POST", "/debug/pprof", 404, "404 page not found\n"),
            ("GET", "/metrics/", 404, "404 page not found\n"),
            ("GET", "/Metrics", 404, "404 page not found\n"),
            ("OPTIONS", "*", 200, ""),
            ("GET", "/%", 400, "400 Bad Request"),
            ("GET", "/%zz", 400, "400 Bad Request"),
            ("GET", "/%ff", 404, "404 page not found\n"),
        ] {
            let (got, _, text) = ask(&router, method, uri).await;
            assert_eq!((got, text.as_str()), (status, body), "{method} {uri}");
        }
    }

    #[tokio::test]
    async fn what_is_kept_from_strangers_needs_a_peer_of_this_host() {
        let open = router();
        assert_eq!(ask(&open, "GET", "/debug/pprof/heap").await.0, 200);
        // Nobody knows where these requests come from.
        let kept = router().kept_from_strangers("/debug/pprof/");
        for path in ["/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/x"] {
            let (status, _, text) = ask(&kept, "GET", path).await;
            assert_eq!((status, text.as_str()), (403, STRANGER), "{path}");
        }
        assert_eq!(ask(&kept, "GET", "/metrics").await.0, 200);
        let directory = tempfile::tempdir().expect("a folder");
        let file = directory.path().join("web.yml");
        let users = "basic_auth_users:\n  me: $2a$04$abcdefghijklmnopqrstuuyvPXIbu7xe6/CED2DzX8z6Si09MlzlW\n";
        std::fs::write(&file, users).expect("a file");
        let web = WebConfig::load(&file).expect("a configuration");
        let behind = router().kept_from_strangers("/debug/pprof/").behind(Some(Arc::new(web)));
        assert_eq!(ask(&behind, "GET", "/debug/pprof/heap").await.0, 401);
        // me:pw
        let request = Request::get("/debug/pprof/heap").header("authorization", "Basic bWU6cHc=");
        let (head, ()) = request.body(()).expect("request").into_parts();
        assert_eq!(behind.dispatch(head).await.status(), 200);
    }

    #[tokio::test]
    async fn a_head_announces_the_length_of_what_it_stands_for() {
        let router = router().at("/done", Methods::Any, |_| response::empty(200));
        for (uri, length) in
            [("/metrics", Some("7")), ("/nope", Some("19")), ("/done", None), ("//", None)]
        {
            let request = Request::builder().method("HEAD").uri(uri).body(()).expect("request");
            let response = router.dispatch(request.into_parts().0).await;
            let got = response.headers().get(CONTENT_LENGTH).map(|v| v.to_str().expect("text"));
            assert_eq!(got, length, "{uri}");
        }
    }

    #[tokio::test]
    async fn redirects() {
        let router = router();
        for (method, uri, location, body) in [
            ("GET", "//", "/", "<a href=\"/\">Temporary Redirect</a>.\n\n"),
            ("POST", "//", "/", ""),
            ("HEAD", "//metrics?a=b", "/metrics?a=b", ""),
            (
                "GET",
                "/debug/pprof",
                "/debug/pprof/",
                "<a href=\"/debug/pprof/\">Temporary Redirect</a>.\n\n",
            ),
            ("POST", "/a/../%3Cb%3E%0d", "/%3Cb%3E%0D", ""),
        ] {
            let (status, target, text) = ask(&router, method, uri).await;
            assert_eq!((status, target.as_str(), text.as_str()), (307, location, body), "{uri}");
        }
    }

    #[tokio::test]
    async fn a_catch_all_takes_what_is_left() {
        let router = router().all(|_| response::text(200, "rest"));
        assert_eq!(ask(&router, "GET", "/nope").await.2, "rest");
        assert_eq!(ask(&router, "GET", "/metrics").await.2, "metrics");
    }
}
