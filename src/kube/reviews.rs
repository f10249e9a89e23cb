//! Reviews: whose a token is, and what its owner may do, asked of the API server.
//!
//! `TokenReview` and `SubjectAccessReview` of the APIs `authentication.k8s.io/v1` and `authorization.k8s.io/v1`, as
//! JSON. An answer that is a matter of time is asked for again, with the pauses of the original; how long all of that
//! may take is up to whoever waits. Nothing here remembers anything, and nothing knows HTTP's side of the matter.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::client::{Client, Refusal};

/// Whose tokens of all known accounts carry this group.
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const ANONYMOUS: &str = "system:anonymous";

/// Attempts, the first pause between them, by which it grows, and by how much it may be longer.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);
const GROWTH: f64 = 1.5;
const JITTER: f64 = 0.2;

/// An account, as a review tells it and as another wants to hear it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Its name.
    #[serde(
        default,
        rename(deserialize = "username", serialize = "user"),
        alias = "user",
        skip_serializing_if = "String::is_empty"
    )]
    pub name: String,
    /// Its groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// What else is said of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Option<Vec<String>>>,
    /// What tells it from another of its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// What a `SubjectAccessReview` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Judgement {
    /// Somebody allows it.
    pub allowed: bool,
    /// Somebody forbids it.
    pub denied: bool,
}

#[derive(Deserialize)]
struct Answer<T> {
    #[serde(default = "Option::default")]
    status: Option<T>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenStatus {
    authenticated: bool,
    user: Account,
    error: String,
}

impl Client {
    /// Whose a token is; `None` when it is nobody's.
    ///
    /// # Errors
    ///
    /// When the API server does not say, or says what is wrong with the token.
    pub async fn review_token(&self, token: &str) -> Result<Option<Account>, String> {
        let review = json!({
            "kind": "TokenReview",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {},
            "spec": {"token": token},
            "status": {"user": {}},
        });
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let status: TokenStatus = self.review(path, &review).await?;
        if !status.authenticated {
            return if status.error.is_empty() { Ok(None) } else { Err(status.error) };
        }
        Ok(Some(status.user.with_group()))
    }

    /// Whether an account may use a method on a path outside the resources of the API.
    ///
    /// # Errors
    ///
    /// When the API server does not say.
    pub async fn review_access(
        &self,
        account: &Account,
        path: &str,
        verb: &str,
    ) -> Result<Judgement, String> {
        self.judge(account, "nonResourceAttributes", json!({"path": path, "verb": verb})).await
    }

    /// Whether an account may see the metrics of what is in a namespace: whether it may `get` the `pods` of
    /// `metrics.k8s.io` there. That is what proxies before metrics ask that rewrite a query's `namespace` to attributes
    /// of a resource, and what the roles `view`, `edit` and `admin` grant where a metrics server is installed.
    ///
    /// # Errors
    ///
    /// When the API server does not say.
    pub async fn review_namespace(
        &self,
        account: &Account,
        namespace: &str,
    ) -> Result<Judgement, String> {
        let attributes = json!({
            "namespace": namespace,
            "verb": "get",
            "group": "metrics.k8s.io",
            "version": "v1beta1",
            "resource": "pods",
        });
        self.judge(account, "resourceAttributes", attributes).await
    }

    async fn judge(
        &self,
        account: &Account,
        kind: &str,
        attributes: Value,
    ) -> Result<Judgement, String> {
        let mut spec = serde_json::to_value(account).map_err(|error| error.to_string())?;
        if let Value::Object(spec) = &mut spec {
            spec.insert(kind.to_owned(), attributes);
        }
        let review = json!({
            "kind": "SubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1",
            "metadata": {},
            "spec": spec,
            "status": {"allowed": false},
        });
        self.review("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await
    }

    async fn review<T>(&self, path: &str, review: &Value) -> Result<T, String>
    where
        T: Default + for<'de> Deserialize<'de>,
    {
        let body = serde_json::to_vec(review).map_err(|error| error.to_string())?;
        let (mut pause, mut attempt) = (PAUSE, 1);
        let answer = loop {
            match self.create(path, body.clone().into()).await? {
                Ok(answer) => break answer,
                Err(refusal) if attempt < ATTEMPTS && is_temporary(&refusal) => {
                    let jitter = 1.0 + fastrand::f64() * JITTER;
                    sleep(refusal.retry_after.unwrap_or(pause.mul_f64(jitter))).await;
                    (pause, attempt) = (pause.mul_f64(GROWTH), attempt + 1);
                }
                Err(Refusal { code, message, .. }) => {
                    return Err(format!("the API server answers {code}: {message}"));
                }
            }
        };
        let answer: Answer<T> = serde_json::from_slice(&answer)
            .map_err(|error| format!("the answer of the API server is no review: {error}"))?;
        Ok(answer.status.unwrap_or_default())
    }
}

fn is_temporary(refusal: &Refusal) -> bool {
    matches!(refusal.code, 429 | 500 | 502 | 503 | 504)
}

impl Account {
    /// Everybody who is known is in the group of those who are.
    fn with_group(mut self) -> Self {
        let is_told = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
        if self.name != ANONYMOUS && !self.groups.iter().any(is_told) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_passed_on_as_it_came() {
        let text = r#"{"username":"u","groups":["g"],"extra":{"a":["1","2"],"B/c":[]},"uid":"x"}"#;
        let account: Account = serde_json::from_str(text).expect("account");
        let account = account.with_group();
        let passed = serde_json::to_value(&account).expect("JSON");
        let want = json!({
            "user": "u", "groups": ["g", AUTHENTICATED], "extra": {"a": ["1", "2"], "B/c": []}, "uid": "x",
        });
        assert_eq!(passed, want);
        assert_eq!(serde_json::from_value::<Account>(passed).expect("account"), account);
        let nameless = Account::default().with_group();
        assert_eq!(
            serde_json::to_value(nameless).expect("JSON"),
            json!({"groups": [AUTHENTICATED]})
        );
    }
}
