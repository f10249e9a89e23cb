//! Authenticates tokens and authorizes users with the API server.
//!
//! Uses `TokenReview` and `SubjectAccessReview` of `authentication.k8s.io/v1` and `authorization.k8s.io/v1` through
//! kube's client. Transient errors are retried with the pauses of the original; callers set the overall timeout.
//! Results are not cached here.

use std::fmt::Debug;
use std::time::Duration;

use ::kube::api::PostParams;
use ::kube::{Api, Resource};
use k8s_openapi::api::authentication::v1::{
    TokenReview, TokenReviewSpec, TokenReviewStatus, UserInfo,
};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
    SubjectAccessReviewStatus,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use super::client::{Client, ClientError};

/// The group that the API server adds to authenticated users.
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const ANONYMOUS: &str = "system:anonymous";

/// The number of attempts, the first pause between them, its growth factor and the maximum jitter as a share of the
/// pause.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);
const GROWTH: f64 = 1.5;
const JITTER: f64 = 0.2;

/// A user, as returned by a `TokenReview` and sent with a `SubjectAccessReview`: a specification without attributes.
pub type Account = SubjectAccessReviewSpec;

/// The result of a `SubjectAccessReview`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The action is allowed.
    pub allowed: bool,
    /// The action is explicitly denied, which overrides other authorizers.
    pub denied: bool,
}

impl Client {
    /// Returns the user of a token, or `None` if the token is not valid.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server does not answer or reports a problem with the token.
    pub async fn review_token(&self, token: &str) -> Result<Option<Account>, ClientError> {
        let review = TokenReview {
            spec: TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() },
            status: Some(TokenReviewStatus {
                user: Some(UserInfo::default()),
                ..TokenReviewStatus::default()
            }),
            ..TokenReview::default()
        };
        let status = self.review(&review).await?.status.unwrap_or_default();
        if status.authenticated != Some(true) {
            let error = status.error.filter(|error| !error.is_empty());
            return error.map_or(Ok(None), |error| Err(ClientError::Other(error)));
        }
        Ok(Some(account_of(status.user.unwrap_or_default())))
    }

    /// Returns whether a user may access a non-resource path with an HTTP verb.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server does not answer.
    pub async fn review_access(
        &self,
        account: &Account,
        path: &str,
        verb: &str,
    ) -> Result<Decision, ClientError> {
        let attributes =
            NonResourceAttributes { path: Some(path.to_owned()), verb: Some(verb.to_owned()) };
        self.review_rights(SubjectAccessReviewSpec {
            non_resource_attributes: Some(attributes),
            ..account.clone()
        })
        .await
    }

    /// Returns whether a user may see the metrics of a namespace: whether they may `get` the `pods` of `metrics.k8s.io`
    /// there. Proxies that rewrite the `namespace` of a query into resource attributes ask the same question, and the
    /// roles `view`, `edit` and `admin` grant it where a metrics server is installed.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server does not answer.
    pub async fn review_namespace(
        &self,
        account: &Account,
        namespace: &str,
    ) -> Result<Decision, ClientError> {
        let text = |text: &str| Some(text.to_owned());
        let attributes = ResourceAttributes {
            namespace: text(namespace),
            verb: text("get"),
            group: text("metrics.k8s.io"),
            version: text("v1beta1"),
            resource: text("pods"),
            ..ResourceAttributes::default()
        };
        self.review_resource(account, attributes).await
    }

    /// Returns whether a user may access a resource.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server does not answer, or if this client may not ask.
    pub async fn review_resource(
        &self,
        account: &Account,
        attributes: ResourceAttributes,
    ) -> Result<Decision, ClientError> {
        let resource_attributes = Some(attributes);
        self.review_rights(SubjectAccessReviewSpec { resource_attributes, ..account.clone() }).await
    }

    async fn review_rights(&self, spec: SubjectAccessReviewSpec) -> Result<Decision, ClientError> {
        let status = Some(SubjectAccessReviewStatus::default());
        let review = SubjectAccessReview { spec, status, ..SubjectAccessReview::default() };
        let status = self.review(&review).await?.status.unwrap_or_default();
        Ok(Decision { allowed: status.allowed, denied: status.denied == Some(true) })
    }

    async fn review<K>(&self, review: &K) -> Result<K, ClientError>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
    {
        let reviews: Api<K> = Api::all(self.api());
        let (mut pause, mut attempt) = (PAUSE, 1);
        loop {
            match self.answer(reviews.create(&PostParams::default(), review)).await {
                Err(ClientError::Refused {
                    code: 429 | 500 | 502 | 503 | 504,
                    retry_after,
                    ..
                }) if attempt < ATTEMPTS => {
                    let jitter = 1.0 + fastrand::f64() * JITTER;
                    sleep(retry_after.unwrap_or(pause.mul_f64(jitter))).await;
                    (pause, attempt) = (pause.mul_f64(GROWTH), attempt + 1);
                }
                answer => return answer,
            }
        }
    }
}

/// Returns the account of a user, without empty attributes. Adds `system:authenticated` to a user that is not anonymous,
/// unless its groups say whether it is authenticated.
fn account_of(user: UserInfo) -> Account {
    let mut groups = user.groups.unwrap_or_default();
    let is_authentication_group =
        |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
    let is_anonymous = user.username.as_deref() == Some(ANONYMOUS);
    if !is_anonymous && !groups.iter().any(is_authentication_group) {
        groups.push(AUTHENTICATED.to_owned());
    }
    Account {
        user: user.username.filter(|name| !name.is_empty()),
        groups: Some(groups).filter(|groups| !groups.is_empty()),
        extra: user.extra.filter(|extra| !extra.is_empty()),
        uid: user.uid.filter(|uid| !uid.is_empty()),
        ..Account::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn accounts_round_trip() {
        let text = r#"{"username":"u","groups":["g"],"extra":{"a":["1","2"],"B/c":[]},"uid":"x"}"#;
        let account = account_of(serde_json::from_str(text).expect("a user"));
        let passed = serde_json::to_value(&account).expect("JSON");
        let want = json!({
            "user": "u", "groups": ["g", AUTHENTICATED], "extra": {"a": ["1", "2"], "B/c": []}, "uid": "x",
        });
        assert_eq!(passed, want);
        assert_eq!(serde_json::from_value::<Account>(passed).expect("account"), account);
        let nameless = account_of(UserInfo::default());
        assert_eq!(
            serde_json::to_value(nameless).expect("JSON"),
            json!({"groups": [AUTHENTICATED]})
        );
    }
}
