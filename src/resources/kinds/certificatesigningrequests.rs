//! `certificatesigningrequests` (certificates.k8s.io/v1 CertificateSigningRequest).

use super::condition::Condition;
use crate::resources::kind::{
    Api, Family, Identity, Kind, Object, Representation, alpha, of_metadata, stable,
};
use crate::resources::metadata::{Metadata, annotations, created, labels};
use crate::resources::series::Series;
use crate::wire::view::{ByteLen, Str, view};

view! {
    /// The fields of a CertificateSigningRequest that metrics read.
    pub struct SigningRequest<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        spec: SigningRequestSpec<'a> = 2 "spec",
        status: SigningRequestStatus<'a> = 3 "status",
    }

    /// `spec`.
    pub struct SigningRequestSpec<'a> {
        signer_name: Str<'a> = 7 "signerName",
    }

    /// `status`.
    pub struct SigningRequestStatus<'a> {
        conditions: Vec<Condition<'a>> = 1 "conditions",
        certificate: ByteLen = 2 "certificate",
    }
}

impl<'a> Object<'a> for SigningRequest<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The CertificateSigningRequest kind.
pub struct SigningRequests;

impl Kind for SigningRequests {
    const API: Api = Api {
        name: "certificatesigningrequests",
        group: "certificates.k8s.io",
        version: "v1",
        kind: "CertificateSigningRequest",
        namespaced: false,
        default_enabled: true,
    };
    const IDENTITY: &'static [Identity<Self>] = &[
        ("certificatesigningrequest", |request| &request.metadata.name),
        ("signer_name", |request| &request.spec.signer_name),
    ];
    const IDENTITY_REPRESENTATION: Representation = Representation::Object;
    type View<'a> = SigningRequest<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        of_metadata(alpha(
            "kube_certificatesigningrequest_annotations",
            &["annotation_*"],
            "The certificate signing request's annotations that the allow list selects.",
            |request, s| annotations(request, s),
        )),
        of_metadata(stable(
            "kube_certificatesigningrequest_labels",
            &["label_*"],
            "The certificate signing request's labels that the allow list selects.",
            |request, s| labels(request, s),
        )),
        of_metadata(stable(
            "kube_certificatesigningrequest_created",
            &[],
            "Unix time of the certificate signing request's creation.",
            |request, s| created(request, s),
        )),
        stable(
            "kube_certificatesigningrequest_condition",
            &["condition"],
            "How many conditions of this type the certificate signing request has, whatever their status.",
            |request, s| conditions(request, s),
        ),
        stable(
            "kube_certificatesigningrequest_cert_length",
            &[],
            "Length of the issued certificate in bytes, 0 before it is issued.",
            |request, s| s.value(request.status.certificate.0 as f64),
        ),
    ];
}

fn conditions(request: &SigningRequest<'_>, s: &mut Series<'_>) {
    for (text, kind) in [("approved", "Approved"), ("denied", "Denied"), ("failed", "Failed")] {
        let of_kind = request.status.conditions.iter().filter(|condition| &*condition.kind == kind);
        s.with(&[("condition", text)], of_kind.count() as f64);
    }
}
