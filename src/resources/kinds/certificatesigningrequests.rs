//! `certificatesigningrequests` (certificates.k8s.io/v1 CertificateSigningRequest).

use crate::resources::prelude::*;
use crate::wire::view::ByteLen;

object! {
    /// The fields of a CertificateSigningRequest that metrics read.
    pub struct SigningRequest<'a> {
        spec: SigningRequestSpec<'a> = 2 "spec" struct SigningRequestSpec {
            signer_name: Str<'a> = 7 "signerName",
        },
        status: SigningRequestStatus<'a> = 3 "status" struct SigningRequestStatus {
            conditions: Vec<Condition<'a>> = 1 "conditions",
            certificate: ByteLen = 2 "certificate",
        },
    }
}

kind! {
    /// The CertificateSigningRequest kind.
    SigningRequests: SigningRequest, "certificate signing request",
        Api::cluster_wide("certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests");
    identity [
        ("certificatesigningrequest", |request| &request.metadata.name),
        ("signer_name", |request| &request.spec.signer_name),
    ], of Object;
    families request, s:
        annotations(Alpha, "kube_certificatesigningrequest_annotations");
        labels(Stable, "kube_certificatesigningrequest_labels");
        created(Stable, "kube_certificatesigningrequest_created");
        stable "kube_certificatesigningrequest_condition" ["condition"],
            "How many conditions of this type the certificate signing request has, whatever their status.":
            conditions(request, s);
        stable "kube_certificatesigningrequest_cert_length",
            "Length of the issued certificate in bytes, 0 before it is issued.":
            s.value(request.status.certificate.0);
}

fn conditions(request: &SigningRequest<'_>, s: &mut Series<'_>) {
    for (text, kind) in [("approved", "Approved"), ("denied", "Denied"), ("failed", "Failed")] {
        let of_kind = request.status.conditions.iter().filter(|condition| &*condition.kind == kind);
        s.with(&[("condition", text)], of_kind.count() as f64);
    }
}
