//! The list/watch protocol as a state machine without I/O.
//!
//! [`Machine::state`] is the next request to send. [`Machine::step`] takes its outcome and returns what to do with the
//! objects collected so far, and whether to back off.
//!
//! The protocol prefers a streaming list (`sendInitialEvents`), which continues as the watch. If the server refuses that, a
//! paged list is followed by a watch. An expired resourceVersion or continue token leads to a new list. Before an interrupted
//! watch is resumed, the server's resourceVersion is checked: it may have been restored from a backup.
//!
//! "Version" means resourceVersion throughout.

/// Options of list requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListOptions {
    /// Try a streaming list first.
    pub streaming: bool,
    /// The number of objects per page.
    pub limit: u64,
    /// Apply `limit` also to the list after an expired continue token, which otherwise requests all objects at once.
    pub always_limit: bool,
    /// Let the server answer every list from its cache.
    pub from_cache: bool,
}

/// The state of a list/watch, which determines its next request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Requesting a streaming list.
    Streaming,
    /// Requesting one page of a list.
    Listing {
        /// The version to request.
        version: ListVersion,
        /// The continue token, empty for the first page.
        token: String,
        /// Request all objects at once, after an expired continue token. A server or a limit may make pages of them nevertheless.
        whole: bool,
    },
    /// Watching for changes.
    Watching {
        /// The version of the last known change.
        version: String,
    },
    /// Checking that the server's version is not behind, before resuming a watch.
    Checking {
        /// The version to resume from.
        version: String,
    },
}

/// The required freshness of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListVersion {
    /// Any version, possibly an old one from the server's cache (`resourceVersion=0`).
    Any,
    /// The latest version (no `resourceVersion`).
    Latest,
}

/// The result of a request or of a part of its response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// The initial state of a streaming list is complete.
    Synced {
        /// The version of the initial state.
        version: String,
    },
    /// A page is complete.
    Page {
        /// The version of the list.
        version: String,
        /// The token of the next page, empty on the last.
        token: String,
    },
    /// The server answered with an error.
    Refused {
        /// The HTTP status.
        code: u16,
    },
    /// An error event ended the watch.
    ErrorEvent {
        /// The code in the event's status.
        code: u16,
    },
    /// A watch ended normally.
    #[default]
    Closed,
    /// The connection failed or broke, or there was no answer in time.
    Broken {
        /// A part of the response was received.
        answered: bool,
    },
    /// The connection broke or was given up after a long silence, in which the server may have been replaced.
    Lost,
    /// The response cannot be parsed.
    Garbled,
    /// The check succeeded: the server is not behind the known version.
    Current,
    /// The check failed: the server is behind the known version, as after a restore from a backup.
    SetBack,
}

/// The action on the objects collected for a new state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collected {
    /// Keep them and continue to collect.
    Keep,
    /// Serve them as the new state.
    Commit,
    /// Drop them.
    Discard,
}

/// The action after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// The action on the objects collected so far.
    pub collected: Collected,
    /// Wait before the next request, unless this one was useful.
    pub wait: bool,
}

const CONTINUE: Instruction = Instruction { collected: Collected::Keep, wait: false };
const RETRY: Instruction = Instruction { collected: Collected::Keep, wait: true };
const COMMIT: Instruction = Instruction { collected: Collected::Commit, wait: false };
const RESTART: Instruction = Instruction { collected: Collected::Discard, wait: false };
const RESTART_LATER: Instruction = Instruction { collected: Collected::Discard, wait: true };

/// The version or continue token has expired.
const GONE: u16 = 410;
const UNAUTHORIZED: u16 = 401;
const FORBIDDEN: u16 = 403;
const NOT_FOUND: u16 = 404;
const METHOD_NOT_ALLOWED: u16 = 405;
const TOO_MANY_REQUESTS: u16 = 429;

/// The list/watch of one resource in one namespace.
#[derive(Clone, Debug)]
pub struct Machine {
    options: ListOptions,
    state: State,
    /// A list was complete before, so a later list must not return an older state.
    synced: bool,
    /// The last paged list was forbidden or not found. Streaming and paged lists then alternate, with backoff.
    denied: bool,
}

impl Machine {
    /// Creates a machine that starts with a list.
    pub fn new(options: ListOptions) -> Self {
        let mut machine = Self { options, state: State::Streaming, synced: false, denied: false };
        machine.state = machine.start();
        machine
    }

    /// Returns the current state, which is also the next request.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Returns the `limit` parameter of the next request.
    pub fn limit(&self) -> Option<u64> {
        match self.state {
            State::Checking { .. } => Some(1),
            State::Listing { whole: true, .. } if !self.options.always_limit => None,
            _ => Some(self.options.limit),
        }
    }

    /// Records the version of the latest event of a watch.
    pub fn saw(&mut self, latest: &str) {
        if let State::Watching { version } = &mut self.state
            && !latest.is_empty()
        {
            version.clear();
            version.push_str(latest);
        }
    }

    /// Returns true after an outcome with which a client that may list cannot watch.
    pub fn is_unwatchable(outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::Refused { code: FORBIDDEN | METHOD_NOT_ALLOWED })
    }

    /// Restarts with a new list.
    pub fn restart_list(&mut self) {
        self.state = self.start();
    }

    /// Takes the outcome of the request for [`Machine::state`] and moves to the next state.
    pub fn step(&mut self, outcome: Outcome) -> Instruction {
        let is_list = matches!(self.state, State::Listing { .. });
        let denied = is_list && matches!(outcome, Outcome::Refused { code: FORBIDDEN | NOT_FOUND });
        let (state, order) = match &self.state {
            State::Streaming => self.streaming(outcome),
            State::Listing { .. } => self.listing(outcome),
            State::Watching { version } => self.watching(version, outcome),
            State::Checking { version } => self.checking(version, outcome),
        };
        if let Some(state) = state {
            self.state = state;
        }
        let committed = order.collected == Collected::Commit;
        self.synced |= committed;
        self.denied = denied || self.denied && !committed;
        order
    }

    /// Returns the initial state.
    fn start(&self) -> State {
        if self.options.streaming { State::Streaming } else { self.plain() }
    }

    /// Returns the first page of a paged list, which may come from the server's cache unless a list was complete before.
    fn plain(&self) -> State {
        self.list(if self.synced { ListVersion::Latest } else { ListVersion::Any }, false)
    }

    fn list(&self, version: ListVersion, whole: bool) -> State {
        let version = if self.options.from_cache { ListVersion::Any } else { version };
        State::Listing { version, token: String::new(), whole }
    }

    fn streaming(&self, outcome: Outcome) -> (Option<State>, Instruction) {
        match outcome {
            Outcome::Synced { version } => (Some(State::Watching { version }), COMMIT),
            Outcome::Refused { code: FORBIDDEN | NOT_FOUND } if self.denied => {
                (Some(self.plain()), RESTART_LATER)
            }
            // A paged list would fail for the same reason.
            Outcome::Broken { answered: false }
            | Outcome::Refused { code: UNAUTHORIZED | TOO_MANY_REQUESTS } => (None, RESTART_LATER),
            // The server may be failing, or streaming lists alone may be: streaming and paged lists alternate, so that
            // either case costs only one extra attempt.
            Outcome::Refused { code } if transient(code) => (Some(self.plain()), RESTART_LATER),
            Outcome::Broken { answered: true }
            | Outcome::Lost
            | Outcome::ErrorEvent { .. }
            | Outcome::Garbled => (Some(self.plain()), RESTART_LATER),
            // The server does not support or refuses streaming lists: a paged list follows.
            Outcome::Refused { .. }
            | Outcome::Closed
            | Outcome::Page { .. }
            | Outcome::Current
            | Outcome::SetBack => (Some(self.plain()), RESTART),
        }
    }

    fn listing(&self, outcome: Outcome) -> (Option<State>, Instruction) {
        let State::Listing { version: asked, token: page, whole } = &self.state else {
            return (None, CONTINUE);
        };
        match outcome {
            Outcome::Page { version, token } if token.is_empty() => {
                (Some(State::Watching { version }), COMMIT)
            }
            Outcome::Page { token, .. } => {
                (Some(State::Listing { version: *asked, token, whole: *whole }), CONTINUE)
            }
            // The continue token expired because the pages took too long. A list of all objects at once has no token
            // that could expire.
            Outcome::Refused { code: GONE } if !page.is_empty() => {
                // Where it has pages, too, their tokens may expire each time.
                let order = if *whole { RESTART_LATER } else { RESTART };
                (Some(self.list(ListVersion::Latest, true)), order)
            }
            Outcome::Refused { code: GONE } => {
                (Some(self.list(ListVersion::Latest, false)), RESTART_LATER)
            }
            // Earlier pages and the continue token remain valid.
            Outcome::Broken { .. } | Outcome::Lost if !page.is_empty() => (None, RETRY),
            Outcome::Refused { code } if !page.is_empty() && transient(code) => (None, RETRY),
            _ => (Some(self.start()), RESTART_LATER),
        }
    }

    fn watching(&self, version: &str, outcome: Outcome) -> (Option<State>, Instruction) {
        let checking = || Some(State::Checking { version: version.to_owned() });
        match outcome {
            Outcome::Closed | Outcome::Broken { answered: true } => (None, RETRY),
            // The server may be replaced before the next attempt.
            Outcome::Broken { answered: false } | Outcome::Lost => (checking(), RETRY),
            Outcome::Refused { code } if code == UNAUTHORIZED || transient(code) => {
                (checking(), RETRY)
            }
            // Without the permission to watch, or for a kind that can only be listed, a list after each attempt would be
            // expensive. The reflector decides when the next one is due.
            _ if Self::is_unwatchable(&outcome) => (None, RETRY),
            // Usually the version has expired. A new list also recovers from most other errors, or at least keeps the data
            // roughly up to date.
            _ => (Some(self.start()), RESTART_LATER),
        }
    }

    fn checking(&self, version: &str, outcome: Outcome) -> (Option<State>, Instruction) {
        match outcome {
            Outcome::Current => (Some(State::Watching { version: version.to_owned() }), CONTINUE),
            Outcome::SetBack => (Some(self.start()), RESTART),
            Outcome::Closed | Outcome::Broken { .. } | Outcome::Lost => (None, RETRY),
            Outcome::Refused { code } if code == UNAUTHORIZED || transient(code) => (None, RETRY),
            _ => (Some(self.start()), RESTART_LATER),
        }
    }
}

/// Returns whether the same request may succeed a little later.
fn transient(code: u16) -> bool {
    code == TOO_MANY_REQUESTS || code >= 500
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: ListOptions =
        ListOptions { streaming: true, limit: 500, always_limit: false, from_cache: false };

    const UNANSWERED: Outcome = Outcome::Broken { answered: false };
    const TORN: Outcome = Outcome::Broken { answered: true };

    fn listing(version: ListVersion, token: &str, whole: bool) -> State {
        State::Listing { version, token: token.to_owned(), whole }
    }

    fn watching(version: &str) -> State {
        State::Watching { version: version.to_owned() }
    }

    fn page(version: &str, token: &str) -> Outcome {
        Outcome::Page { version: version.to_owned(), token: token.to_owned() }
    }

    fn refused(code: u16) -> Outcome {
        Outcome::Refused { code }
    }

    /// Asserts the state and order that follow from a state and an outcome.
    fn check(options: ListOptions, from: &State, outcome: Outcome, to: &State, order: Instruction) {
        let mut machine = Machine { options, state: from.clone(), synced: false, denied: false };
        let what = format!("{from:?} on {outcome:?}");
        assert_eq!(machine.step(outcome), order, "{what}");
        assert_eq!(machine.state(), to, "{what}");
    }

    #[test]
    fn streaming_lists() {
        use State::Streaming;
        let list = listing(ListVersion::Any, "", false);
        let synced = Outcome::Synced { version: "7".to_owned() };
        assert_eq!(*Machine::new(OPTIONS).state(), Streaming);
        check(OPTIONS, &Streaming, synced, &watching("7"), COMMIT);
        for code in [400, 403, 404, 406, 410, 422] {
            check(OPTIONS, &Streaming, refused(code), &list, RESTART);
        }
        for code in [401, 429] {
            check(OPTIONS, &Streaming, refused(code), &Streaming, RESTART_LATER);
        }
        for code in [500, 503] {
            check(OPTIONS, &Streaming, refused(code), &list, RESTART_LATER);
        }
        check(OPTIONS, &Streaming, UNANSWERED, &Streaming, RESTART_LATER);
        check(OPTIONS, &Streaming, TORN, &list, RESTART_LATER);
        check(OPTIONS, &Streaming, Outcome::Closed, &list, RESTART);
        check(OPTIONS, &Streaming, Outcome::ErrorEvent { code: 500 }, &list, RESTART_LATER);
        check(OPTIONS, &Streaming, Outcome::Garbled, &list, RESTART_LATER);
    }

    #[test]
    fn paged_lists() {
        use State::Streaming;
        let first = listing(ListVersion::Any, "", false);
        let second = listing(ListVersion::Any, "t", false);
        check(OPTIONS, &first, page("3", "t"), &second, CONTINUE);
        check(OPTIONS, &first, page("3", ""), &watching("3"), COMMIT);
        check(OPTIONS, &second, page("3", ""), &watching("3"), COMMIT);
        let latest = listing(ListVersion::Latest, "", false);
        let whole = listing(ListVersion::Latest, "", true);
        check(OPTIONS, &first, refused(410), &latest, RESTART_LATER);
        check(OPTIONS, &second, refused(410), &whole, RESTART);
        check(OPTIONS, &whole, page("4", ""), &watching("4"), COMMIT);
        let rest = listing(ListVersion::Latest, "u", true);
        check(OPTIONS, &whole, page("4", "u"), &rest, CONTINUE);
        check(OPTIONS, &rest, refused(410), &whole, RESTART_LATER);
        for code in [429, 500, 503, 504] {
            check(OPTIONS, &first, refused(code), &Streaming, RESTART_LATER);
            check(OPTIONS, &second, refused(code), &second, RETRY);
        }
        for code in [400, 401, 403, 404] {
            check(OPTIONS, &first, refused(code), &Streaming, RESTART_LATER);
            check(OPTIONS, &second, refused(code), &Streaming, RESTART_LATER);
        }
        for broken in [UNANSWERED, TORN] {
            check(OPTIONS, &first, broken.clone(), &Streaming, RESTART_LATER);
            check(OPTIONS, &second, broken, &second, RETRY);
        }
        check(OPTIONS, &second, Outcome::Garbled, &Streaming, RESTART_LATER);
    }

    #[test]
    fn watches() {
        use State::Streaming;
        let here = watching("5");
        let unsure = State::Checking { version: "5".to_owned() };
        for end in [Outcome::Closed, TORN] {
            check(OPTIONS, &here, end, &here, RETRY);
        }
        for end in [UNANSWERED, Outcome::Lost] {
            check(OPTIONS, &here, end, &unsure, RETRY);
        }
        for code in [401, 429, 500, 503] {
            check(OPTIONS, &here, refused(code), &unsure, RETRY);
        }
        for code in [400, 404, 410] {
            check(OPTIONS, &here, refused(code), &Streaming, RESTART_LATER);
        }
        for code in [403, 405] {
            check(OPTIONS, &here, refused(code), &here, RETRY);
        }
        for code in [410, 500] {
            check(OPTIONS, &here, Outcome::ErrorEvent { code }, &Streaming, RESTART_LATER);
        }
        check(OPTIONS, &here, Outcome::Garbled, &Streaming, RESTART_LATER);
    }

    /// A server that was restored from a backup sends no error for versions that it does not know.
    #[test]
    fn restored_server_leads_to_a_relist() {
        use State::Streaming;
        let unsure = State::Checking { version: "5".to_owned() };
        check(OPTIONS, &unsure, Outcome::Current, &watching("5"), CONTINUE);
        check(OPTIONS, &unsure, Outcome::SetBack, &Streaming, RESTART);
        for end in [Outcome::Closed, UNANSWERED, TORN, Outcome::Lost, refused(503), refused(401)] {
            check(OPTIONS, &unsure, end, &unsure, RETRY);
        }
        for end in [Outcome::Garbled, refused(403), refused(410)] {
            check(OPTIONS, &unsure, end, &Streaming, RESTART_LATER);
        }
    }

    #[test]
    fn without_streaming_lists() {
        let options = ListOptions { streaming: false, ..OPTIONS };
        let any = listing(ListVersion::Any, "", false);
        assert_eq!(*Machine::new(options).state(), any);
        check(options, &watching("5"), refused(410), &any, RESTART_LATER);
        let latest = listing(ListVersion::Latest, "", false);
        check(options, &latest, UNANSWERED, &any, RESTART_LATER);
    }

    #[test]
    fn relist_never_returns_an_older_state() {
        for (options, expected) in [
            (ListOptions { streaming: false, ..OPTIONS }, ListVersion::Latest),
            (ListOptions { streaming: false, from_cache: true, ..OPTIONS }, ListVersion::Any),
        ] {
            let mut machine = Machine::new(options);
            machine.step(page("3", ""));
            machine.step(Outcome::ErrorEvent { code: 410 });
            assert_eq!(*machine.state(), listing(expected, "", false));
        }
        let mut machine = Machine::new(OPTIONS);
        machine.step(Outcome::Synced { version: "7".to_owned() });
        machine.step(Outcome::ErrorEvent { code: 410 });
        assert_eq!(*machine.state(), State::Streaming);
        machine.step(refused(422));
        assert_eq!(*machine.state(), listing(ListVersion::Latest, "", false));
    }

    /// A streaming list followed at once by a paged list would double the requests for a refused kind.
    #[test]
    fn denied_kind_is_requested_once_per_attempt() {
        for code in [403, 404] {
            let mut machine = Machine::new(OPTIONS);
            assert_eq!(machine.step(refused(code)), RESTART);
            for _ in 0..3 {
                assert_eq!(*machine.state(), listing(ListVersion::Any, "", false));
                assert_eq!(machine.step(refused(code)), RESTART_LATER);
                assert_eq!(*machine.state(), State::Streaming);
                assert_eq!(machine.step(refused(code)), RESTART_LATER);
            }
            // With permission to list but not to watch, the paged list follows at once.
            machine.step(page("3", ""));
            machine.restart_list();
            assert_eq!(machine.step(refused(code)), RESTART);
        }
    }

    #[test]
    fn limits() {
        let limit =
            |options, state| Machine { options, state, synced: false, denied: false }.limit();
        let whole = listing(ListVersion::Latest, "", true);
        let page = listing(ListVersion::Any, "t", false);
        assert_eq!(limit(OPTIONS, page), Some(500));
        assert_eq!(limit(OPTIONS, whole.clone()), None);
        assert_eq!(limit(ListOptions { limit: 9, always_limit: true, ..OPTIONS }, whole), Some(9));
    }

    #[test]
    fn follows_the_version_of_events() {
        let mut machine =
            Machine { options: OPTIONS, state: watching("5"), synced: true, denied: false };
        machine.saw("6");
        machine.saw("");
        assert_eq!(*machine.state(), watching("6"));
        let mut machine = Machine::new(OPTIONS);
        machine.saw("6");
        assert_eq!(*machine.state(), State::Streaming);
    }

    /// A kind that is denied is requested in both ways with backoff, until a list succeeds.
    #[test]
    fn denied_lists_alternate_with_backoff_until_one_succeeds() {
        let mut machine = Machine::new(OPTIONS);
        assert_eq!(machine.step(refused(403)), RESTART);
        for _ in 0..2 {
            assert_eq!(machine.step(refused(403)), RESTART_LATER);
            assert_eq!(machine.step(refused(403)), RESTART_LATER);
            // Another failure in between changes nothing.
            assert_eq!(machine.step(refused(500)), RESTART_LATER);
            assert_eq!(machine.step(refused(404)), RESTART_LATER);
        }
        assert_eq!(machine.step(page("3", "")), COMMIT);
        assert_eq!(machine.step(refused(410)), RESTART_LATER);
        assert_eq!(machine.step(refused(403)), RESTART);
    }
}
