//! What to ask the API server next: the list/watch protocol as a state machine without I/O.
//!
//! [`Machine::state`] says what to send, [`Machine::step`] takes what came of it and says what to do
//! with the objects collected so far and when to go on. The protocol: one streaming list
//! (`sendInitialEvents`) that goes on as the watch; a paged list and then a watch where the server
//! refuses that; a new start from an empty version when a version or a token has expired. Before a watch goes on
//! that was lost for a while, the server's version is looked at: it may have been set back.

/// How lists are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListOptions {
    /// Whether to try a streaming list first.
    pub streaming: bool,
    /// Objects for each page.
    pub limit: u64,
    /// Whether `limit` holds for lists after an expired token too, which else ask for everything at once.
    pub always_limit: bool,
    /// Whether every list takes what the server has in its cache.
    pub from_cache: bool,
}

/// Where a list/watch stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Getting the state as the beginning of a watch.
    Streaming,
    /// Getting a page of the state.
    Listing {
        /// What version to ask for.
        version: ListVersion,
        /// The page, empty for the first.
        token: String,
        /// Whether to ask for all objects at once.
        whole: bool,
    },
    /// Following changes after this version.
    Watching {
        /// The version.
        version: String,
    },
    /// Finding out whether the server has come as far as this version, to go on from there.
    Checking {
        /// The version.
        version: String,
    },
}

/// Which state of the cluster a list is to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListVersion {
    /// Any, also an old one: what the server has in its cache (`resourceVersion=0`).
    Any,
    /// The latest (no `resourceVersion`).
    Latest,
}

/// What a request, or a part of its response, has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The initial state of a streaming list is complete at this version.
    Synced {
        /// The version.
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
    /// The watch brought an error, which ends it.
    ErrorEvent {
        /// The code in the event's status.
        code: u16,
    },
    /// A watch came to its regular end.
    Closed,
    /// No connection, or it broke.
    Broken {
        /// Whether there was an answer, of which the rest is missing.
        answered: bool,
    },
    /// It broke, or was given up, after so much silence that anything may have happened to the server meanwhile.
    Lost,
    /// The response makes no sense.
    Garbled,
    /// The server has come as far as what is known.
    Current,
    /// It has not: it shows an older state than it did.
    SetBack,
}

/// What to do with the objects collected for a new state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collected {
    /// Go on collecting.
    Keep,
    /// They are the new state.
    Commit,
    /// Forget them.
    Discard,
}

/// What a step orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// What to do with the objects collected so far.
    pub collected: Collected,
    /// Whether to wait before the next request, unless this one did some good.
    pub wait: bool,
}

const GO_ON: Order = Order { collected: Collected::Keep, wait: false };
const RETRY: Order = Order { collected: Collected::Keep, wait: true };
const COMMIT: Order = Order { collected: Collected::Commit, wait: false };
const RESTART: Order = Order { collected: Collected::Discard, wait: false };
const RESTART_LATER: Order = Order { collected: Collected::Discard, wait: true };

/// A version or token that the server has forgotten.
const GONE: u16 = 410;
const UNAUTHORIZED: u16 = 401;
const TOO_MANY_REQUESTS: u16 = 429;

/// The list/watch of one resource in one namespace.
#[derive(Clone, Debug)]
pub struct Machine {
    options: ListOptions,
    state: State,
    /// Whether there was a complete state before: a new list must not show an older one.
    synced: bool,
}

impl Machine {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(options: ListOptions) -> Self {
        let mut machine = Self { options, state: State::Streaming, synced: false };
        machine.state = machine.start();
        machine
    }

    /// Where it stands, which is also what to ask for next.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// How many objects to ask for, if there is a bound.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        match self.state {
            State::Checking { .. } => Some(1),
            State::Listing { whole: true, .. } if !self.options.always_limit => None,
            _ => Some(self.options.limit),
        }
    }

    /// Notes the version of the latest event.
    pub fn saw(&mut self, latest: &str) {
        if let State::Watching { version } = &mut self.state
            && !latest.is_empty()
        {
            version.clear();
            version.push_str(latest);
        }
    }

    /// What was known has been given up: a new list is needed, whatever comes next.
    pub fn begin_anew(&mut self) {
        self.state = self.start();
    }

    /// Takes what came of the request for [`Machine::state`].
    pub fn step(&mut self, outcome: Outcome) -> Order {
        let (state, order) = match &self.state {
            State::Streaming => self.streaming(outcome),
            State::Listing { .. } => self.listing(outcome),
            State::Watching { version } => self.watching(version, outcome),
            State::Checking { version } => self.checking(version, outcome),
        };
        if let Some(state) = state {
            self.state = state;
        }
        self.synced |= order.collected == Collected::Commit;
        order
    }

    /// Where to begin, and to begin again.
    fn start(&self) -> State {
        if self.options.streaming { State::Streaming } else { self.plain() }
    }

    /// A paged list of what is good enough.
    fn plain(&self) -> State {
        self.list(if self.synced { ListVersion::Latest } else { ListVersion::Any }, false)
    }

    fn list(&self, version: ListVersion, whole: bool) -> State {
        let version = if self.options.from_cache { ListVersion::Any } else { version };
        State::Listing { version, token: String::new(), whole }
    }

    fn streaming(&self, outcome: Outcome) -> (Option<State>, Order) {
        match outcome {
            Outcome::Synced { version } => (Some(State::Watching { version }), COMMIT),
            // Nothing that an ordinary list would not meet with too.
            Outcome::Broken { answered: false }
            | Outcome::Refused { code: UNAUTHORIZED | TOO_MANY_REQUESTS } => (None, RESTART_LATER),
            // It may be the server's trouble, or trouble that only streaming lists have: the two take
            // turns, so that neither costs more than one attempt.
            Outcome::Refused { code } if transient(code) => (Some(self.plain()), RESTART_LATER),
            Outcome::Broken { answered: true }
            | Outcome::Lost
            | Outcome::ErrorEvent { .. }
            | Outcome::Garbled => (Some(self.plain()), RESTART_LATER),
            // The server does not know streaming lists, or will not give one: an ordinary list follows.
            Outcome::Refused { .. }
            | Outcome::Closed
            | Outcome::Page { .. }
            | Outcome::Current
            | Outcome::SetBack => (Some(self.plain()), RESTART),
        }
    }

    fn listing(&self, outcome: Outcome) -> (Option<State>, Order) {
        let State::Listing { version: asked, token: page, .. } = &self.state else {
            return (None, GO_ON);
        };
        match outcome {
            Outcome::Page { version, token } if token.is_empty() => {
                (Some(State::Watching { version }), COMMIT)
            }
            Outcome::Page { token, .. } => {
                (Some(State::Listing { version: *asked, token, whole: false }), GO_ON)
            }
            // The pages came too slowly for the server to keep their version. Asked for everything at
            // once, it has no token that could expire again.
            Outcome::Refused { code: GONE } if !page.is_empty() => {
                (Some(self.list(ListVersion::Latest, true)), RESTART)
            }
            Outcome::Refused { code: GONE } => {
                (Some(self.list(ListVersion::Latest, false)), RESTART_LATER)
            }
            // The pages before are good; so is the token, until the server says otherwise.
            Outcome::Broken { .. } | Outcome::Lost if !page.is_empty() => (None, RETRY),
            Outcome::Refused { code } if !page.is_empty() && transient(code) => (None, RETRY),
            _ => (Some(self.start()), RESTART_LATER),
        }
    }

    fn watching(&self, version: &str, outcome: Outcome) -> (Option<State>, Order) {
        let checking = || Some(State::Checking { version: version.to_owned() });
        match outcome {
            Outcome::Closed | Outcome::Broken { answered: true } => (None, RETRY),
            // Until the next attempt the server may have become another.
            Outcome::Broken { answered: false } | Outcome::Lost => (checking(), RETRY),
            Outcome::Refused { code } if code == UNAUTHORIZED || transient(code) => {
                (checking(), RETRY)
            }
            // Above all the version has expired. Otherwise the server will not serve it for a reason
            // that a list has a chance to overcome, or at least to follow slowly.
            _ => (Some(self.start()), RESTART_LATER),
        }
    }

    fn checking(&self, version: &str, outcome: Outcome) -> (Option<State>, Order) {
        match outcome {
            Outcome::Current => (Some(State::Watching { version: version.to_owned() }), GO_ON),
            Outcome::SetBack => (Some(self.start()), RESTART),
            Outcome::Closed | Outcome::Broken { .. } | Outcome::Lost => (None, RETRY),
            Outcome::Refused { code } if code == UNAUTHORIZED || transient(code) => (None, RETRY),
            _ => (Some(self.start()), RESTART_LATER),
        }
    }
}

/// Whether the same request may succeed a little later.
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

    /// From a state, an outcome leads to a state and an order.
    fn check(options: ListOptions, from: &State, outcome: Outcome, to: &State, order: Order) {
        let mut machine = Machine { options, state: from.clone(), synced: false };
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
        check(OPTIONS, &first, page("3", "t"), &second, GO_ON);
        check(OPTIONS, &first, page("3", ""), &watching("3"), COMMIT);
        check(OPTIONS, &second, page("3", ""), &watching("3"), COMMIT);
        let latest = listing(ListVersion::Latest, "", false);
        let whole = listing(ListVersion::Latest, "", true);
        check(OPTIONS, &first, refused(410), &latest, RESTART_LATER);
        check(OPTIONS, &second, refused(410), &whole, RESTART);
        check(OPTIONS, &whole, page("4", ""), &watching("4"), COMMIT);
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
        for code in [400, 403, 404, 410] {
            check(OPTIONS, &here, refused(code), &Streaming, RESTART_LATER);
        }
        for code in [410, 500] {
            check(OPTIONS, &here, Outcome::ErrorEvent { code }, &Streaming, RESTART_LATER);
        }
        check(OPTIONS, &here, Outcome::Garbled, &Streaming, RESTART_LATER);
    }

    /// A server that was restored from a backup knows nothing of later versions, and tells nobody.
    #[test]
    fn a_server_that_was_set_back_is_listed_anew() {
        use State::Streaming;
        let unsure = State::Checking { version: "5".to_owned() };
        check(OPTIONS, &unsure, Outcome::Current, &watching("5"), GO_ON);
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
    fn a_state_is_never_replaced_by_an_older_one() {
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

    #[test]
    fn limits() {
        let limit = |options, state| Machine { options, state, synced: false }.limit();
        let whole = listing(ListVersion::Latest, "", true);
        let page = listing(ListVersion::Any, "t", false);
        assert_eq!(limit(OPTIONS, page), Some(500));
        assert_eq!(limit(OPTIONS, whole.clone()), None);
        assert_eq!(limit(ListOptions { limit: 9, always_limit: true, ..OPTIONS }, whole), Some(9));
    }

    #[test]
    fn follows_the_version_of_events() {
        let mut machine = Machine { options: OPTIONS, state: watching("5"), synced: true };
        machine.saw("6");
        machine.saw("");
        assert_eq!(*machine.state(), watching("6"));
        let mut machine = Machine::new(OPTIONS);
        machine.saw("6");
        assert_eq!(*machine.state(), State::Streaming);
    }
}
