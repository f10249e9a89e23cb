//! Routes paths to handlers, with the rules of Go's `ServeMux` that clients of the originals may
//! rely on: unclean paths are redirected (307), `/x/` serves its entire subtree and `/x` redirects
//! to it, and a method without a handler is not found.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use hyper::Method;
use hyper::header::{CONTENT_LENGTH, USER_AGENT};
use hyper::http::request::Parts;

use super::authorisation::Authorisation;
use super::connection::Peer;
use super::query;
use super::response::{self, Response};
use super::web_config::{Guard, WebConfig};

/// The head of a request. Bodies are never read.
#[derive(Debug)]
pub struct Call {
    /// Method, URI and headers.
    pub head: Parts,
    /// The decoded path.
    pub path: String,
}

impl Call {
    /// Returns the raw query string, empty if there is none.
    pub fn query(&self) -> &str {
        self.head.uri.query().unwrap_or_default()
    }

    /// Returns the first value of a header, empty if it is absent or not text.
    pub fn header(&self, name: hyper::header::HeaderName) -> &str {
        self.head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Returns whether the client is a command of kstatd, such as `kstatd top`.
    pub fn is_from_command(&self) -> bool {
        self.header(USER_AGENT).starts_with(COMMAND)
    }

    /// Iterates over all values of a header that are text.
    pub fn headers(&self, name: hyper::header::HeaderName) -> impl Iterator<Item = &str> {
        self.head.headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok())
    }
}

/// The methods of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Methods {
    /// Every method.
    Any,
    /// `GET` and `HEAD`.
    Read,
}

type ResponseFuture = Pin<Box<dyn Future<Output = Response> + Send>>;
type Handler = Arc<dyn Fn(Call) -> ResponseFuture + Send + Sync>;

/// The user agent prefix of kstatd's commands, before the version.
const COMMAND: &str = "kstatd/";

/// Public paths: liveness, readiness and the landing page. New routes are not public unless listed
/// here.
const OPEN: [&str; 4] = ["/", "/healthz", "/livez", "/readyz"];

/// The response to a client that may not fetch profiles.
const PROFILES_FORBIDDEN: &str = "Profiles are served to connections from this host (kubectl port-forward, or a local proxy) and to clients authenticated by --auth-filter, a password or a client certificate; --profiles=everybody serves them to every client\n";

/// Marks a request of another replica to a listener that admits everybody.
#[derive(Clone, Copy, Debug)]
pub struct Unprotected;

/// The routes of one listener.
#[derive(Default)]
pub struct Router {
    routes: Vec<Route>,
    guard: Option<Guard>,
    /// The path that other replicas poll. Its handler decides what they may see.
    replicas: Option<&'static str>,
    /// The beginning of the paths that require authentication or, where none is configured, a local connection.
    restricted: Option<&'static str>,
    authorisation: Option<Arc<Authorisation>>,
}

struct Route {
    path: String,
    methods: Methods,
    handler: Handler,
    /// True if the response can be limited to namespaces.
    by_namespace: bool,
}

impl Router {
    /// Adds a synchronous handler for `path`. A path that ends in `/` matches its entire subtree,
    /// except `/`, which matches only itself. An empty path matches all paths without a route.
    pub fn at(
        self,
        path: &str,
        methods: Methods,
        handler: impl Fn(&Call) -> Response + Send + Sync + 'static,
    ) -> Self {
        self.at_async(path, methods, move |call| ready(handler(&call)))
    }

    /// Adds an asynchronous handler for `path`.
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
        self.routes.push(Route { path: path.to_owned(), methods, handler, by_namespace: false });
        self
    }

    /// Marks the route added last as limitable to namespaces, so that clients with access to these
    /// may use it. The filter parses the query like the handler does ([`query::namespaces`]).
    pub fn by_namespace(mut self) -> Self {
        if let Some(route) = self.routes.last_mut() {
            route.by_namespace = true;
        }
        self
    }

    /// Exempts a path from users, rate limit and auth filter: other replicas have no password.
    pub fn for_replicas(mut self, path: &'static str) -> Self {
        self.replicas = Some(path);
        self
    }

    /// Adds the routes of `other`.
    pub fn merge(mut self, other: Router) -> Self {
        self.routes.extend(other.routes);
        self.restricted = self.restricted.or(other.restricted);
        self
    }

    /// Restricts all paths that are not [`OPEN`] to clients admitted by the filter. The filter then
    /// applies to every method, so that none bypasses it.
    pub fn with_authorisation(mut self, authorisation: Option<Arc<Authorisation>>) -> Self {
        self.authorisation = authorisation;
        self
    }

    /// Restricts the paths below `prefix`. With an auth filter or users of a web configuration, only authenticated
    /// clients have access, including those with a verified certificate. Without them, only connections from this host
    /// have access: `kubectl port-forward`, which needs a separate permission, and any local proxy.
    pub fn restrict(mut self, prefix: &'static str) -> Self {
        self.restricted = Some(prefix);
        self
    }

    /// Applies a web configuration to all routes.
    pub fn with_web_config(mut self, web: Option<Arc<WebConfig>>) -> Self {
        self.guard = web.map(Guard::new);
        self
    }

    /// Returns the web configuration.
    pub fn web(&self) -> Option<&Arc<WebConfig>> {
        self.guard.as_ref().map(|guard| &guard.config)
    }

    /// Answers one request.
    pub async fn dispatch(&self, mut head: Parts) -> Response {
        let is_head = head.method == Method::HEAD;
        let is_exempt = self.replicas == Some(head.uri.path());
        if is_exempt && self.is_open().await {
            head.extensions.insert(Unprotected);
        }
        let mut response = match &self.guard {
            None => self.answer(head, false).await,
            Some(_) if is_exempt => self.answer(head, false).await,
            Some(guard) => match guard.admit(&head).await {
                Ok(admitted) => {
                    admitted.put_headers(self.answer(head, admitted.has_password).await)
                }
                Err(refusal) => *refusal,
            },
        };
        if is_head {
            // A body that was skipped because nobody would see it has no meaningful length.
            let size = hyper::body::Body::size_hint(response.body()).exact();
            if let Some(size) = size.filter(|size| *size > 0) {
                response.headers_mut().insert(CONTENT_LENGTH, size.into());
            }
            response = response.map(super::body::Body::without_data);
        }
        response
    }

    /// Returns true if there are neither users nor an auth filter.
    async fn is_open(&self) -> bool {
        let has_users = match &self.guard {
            Some(guard) => guard.has_users().await,
            None => false,
        };
        !has_users && self.authorisation.is_none()
    }

    /// Answers a request that has passed the web configuration; `has_password` if it did so with a
    /// password.
    async fn answer(&self, head: Parts, has_password: bool) -> Response {
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
                let filter = self.filter(route);
                if let Some(filter) = filter
                    && let Err(refusal) = filter.admit(&head, &path, route.by_namespace).await
                {
                    return *refusal;
                }
                let is_authenticated = has_password || filter.is_some();
                let is_restricted = self.restricted.is_some_and(|all| route.path.starts_with(all));
                if is_restricted && !is_authenticated && !self.is_trusted_connection(&head) {
                    return response::error(403, PROFILES_FORBIDDEN);
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

    /// Returns the filter, unless the route is public.
    fn filter(&self, route: &Route) -> Option<&Authorisation> {
        let path = route.path.as_str();
        let is_public = OPEN.contains(&path) || self.replicas == Some(path);
        self.authorisation.as_deref().filter(|_| !is_public)
    }

    /// Returns whether an unauthenticated client may use restricted paths. This depends on what its
    /// connection proved, not on the current content of the web configuration.
    fn is_trusted_connection(&self, head: &Parts) -> bool {
        let Some(peer) = head.extensions.get::<Peer>() else { return false };
        let is_of_this_host =
            || peer.address().is_some_and(|address| address.to_canonical().is_loopback());
        let had_users = self.web().is_some_and(|web| web.had_users);
        peer.is_verified || (self.authorisation.is_none() && !had_users && is_of_this_host())
    }

    /// Returns whether a GET request for `path` has a handler.
    pub fn serves(&self, path: &str) -> bool {
        !matches!(self.find(path, &Method::GET), Found::Nothing)
    }

    fn find(&self, path: &str, method: &Method) -> Found<'_> {
        let answers = |route: &&Route| match route.methods {
            Methods::Any => true,
            Methods::Read => {
                matches!(*method, Method::GET | Method::HEAD) || self.filter(route).is_some()
            }
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
    async fn restricted_paths_require_a_local_peer() {
        let open = router();
        assert_eq!(ask(&open, "GET", "/debug/pprof/heap").await.0, 200);
        // The origin of these requests is unknown.
        let restricted = router().restrict("/debug/pprof/");
        for path in ["/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/x"] {
            let (status, _, text) = ask(&restricted, "GET", path).await;
            assert_eq!((status, text.as_str()), (403, PROFILES_FORBIDDEN), "{path}");
        }
        assert_eq!(ask(&restricted, "GET", "/metrics").await.0, 200);
        let directory = tempfile::tempdir().expect("a folder");
        let file = directory.path().join("web.yml");
        let users = "basic_auth_users:\n  me: $2a$04$abcdefghijklmnopqrstuuyvPXIbu7xe6/CED2DzX8z6Si09MlzlW\n";
        std::fs::write(&file, users).expect("a file");
        let web = WebConfig::load(&file).expect("a configuration");
        let behind = router().restrict("/debug/pprof/").with_web_config(Some(Arc::new(web)));
        assert_eq!(ask(&behind, "GET", "/debug/pprof/heap").await.0, 401);
        // me:pw
        let request = Request::get("/debug/pprof/heap").header("authorization", "Basic bWU6cHc=");
        let (head, ()) = request.body(()).expect("request").into_parts();
        assert_eq!(behind.dispatch(head).await.status(), 200);
    }

    /// Editing the file while a request arrives proves nothing about the client.
    #[tokio::test]
    async fn a_web_config_reload_keeps_profiles_restricted() {
        let directory = tempfile::tempdir().expect("a folder");
        let file = directory.path().join("web.yml");
        let profile =
            || Request::get("/debug/pprof/heap").body(()).expect("request").into_parts().0;
        let users = "basic_auth_users:\n  me: $2a$04$abcdefghijklmnopqrstuuyvPXIbu7xe6/CED2DzX8z6Si09MlzlW\n";
        // A proxy on this host, and a remote address.
        for (before, after, here) in [
            ("", "", 200),
            ("", "tls_server_config: {client_auth_type: RequireAndVerifyClientCert}\n", 200),
            (users, "", 403),
        ] {
            std::fs::write(&file, before).expect("a file");
            let web = Arc::new(WebConfig::load(&file).expect("a configuration"));
            let router = router().restrict("/debug/pprof/").with_web_config(Some(web));
            std::fs::write(&file, after).expect("a file");
            assert_eq!(router.dispatch(profile()).await.status(), 403, "{before:?} to {after:?}");
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
            let address = listener.local_addr().expect("address");
            let client = tokio::net::TcpStream::connect(address).await.expect("connect");
            let stream = Arc::new(client);
            let mut head = profile();
            head.extensions.insert(Peer::of(&stream, false));
            assert_eq!(router.dispatch(head).await.status(), here, "{before:?} to {after:?}");
            let mut head = profile();
            head.extensions.insert(Peer::of(&stream, true));
            assert_eq!(router.dispatch(head).await.status(), 200, "its certificate was verified");
        }
    }

    #[tokio::test]
    async fn head_responses_have_the_content_length_of_get() {
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
    async fn a_catch_all_route_matches_the_rest() {
        let router = router().at("", Methods::Any, |_| response::text(200, "rest"));
        assert_eq!(ask(&router, "GET", "/nope").await.2, "rest");
        assert_eq!(ask(&router, "GET", "/metrics").await.2, "metrics");
    }
}
