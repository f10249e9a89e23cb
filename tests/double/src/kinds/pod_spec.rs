//! `PodSpec`, in pods and in pod templates.

use crate::encode::Message;
use crate::layout::{Container, Controller, Workload};

use super::meta::app_selector;

/// The fields that a pod has and a template does not.
pub struct Bound<'a> {
    /// The node, empty before scheduling.
    pub node: &'a str,
    /// Suffix of the volume with the account's token.
    pub token_suffix: &'a str,
    /// The claim of a stateful pod.
    pub claim: Option<&'a str>,
}

/// Writes the fields of a `PodSpec`.
pub fn write(m: &mut Message<'_>, workload: &Workload, bound: Option<&Bound<'_>>) {
    let job = matches!(workload.controller, Controller::Job { .. });
    let token = bound.map(|bound| format!("kube-api-access-{}", bound.token_suffix));
    m.messages(1, "volumes", 0..if bound.is_some() { 4 } else { 2 }, |m, at| match at {
        0 => volume(m, "config", |m| {
            m.message(19, "configMap", |m| {
                m.inline(1, |m| m.text(1, "name", &workload.name));
                m.int(3, "defaultMode", 420);
            });
        }),
        1 => volume(m, "tmp", |m| m.message(2, "emptyDir", |m| m.text(1, "medium", ""))),
        2 => volume(m, token.as_deref().unwrap_or_default(), token_volume),
        _ => match bound.and_then(|bound| bound.claim) {
            Some(claim) => volume(m, "data", |m| {
                m.message(10, "persistentVolumeClaim", |m| {
                    m.text(1, "claimName", claim);
                    m.flag(2, "readOnly", false);
                });
            }),
            None => volume(m, "cache", |m| m.message(2, "emptyDir", |m| m.text(1, "medium", ""))),
        },
    });
    m.messages(2, "containers", &workload.containers, |m, spec| {
        container(m, spec, token.as_deref());
    });
    m.text(3, "restartPolicy", if job { "OnFailure" } else { "Always" });
    m.int(4, "terminationGracePeriodSeconds", 30);
    m.text(6, "dnsPolicy", "ClusterFirst");
    m.text(8, "serviceAccountName", &workload.name);
    m.text(9, "serviceAccount", &workload.name);
    m.text(10, "nodeName", bound.map_or("", |bound| bound.node));
    m.flag(11, "hostNetwork", false);
    m.flag(12, "hostPID", false);
    m.flag(13, "hostIPC", false);
    m.message(14, "securityContext", |m| {
        m.int(2, "runAsUser", 10_001);
        m.flag(3, "runAsNonRoot", true);
        m.message(10, "seccompProfile", |m| m.text(1, "type", "RuntimeDefault"));
    });
    m.text(16, "hostname", "");
    m.text(17, "subdomain", "");
    m.message(18, "affinity", |m| spread_over_nodes(m, workload));
    m.text(19, "schedulerName", "default-scheduler");
    m.messages(22, "tolerations", ["not-ready", "unreachable"], |m, taint| {
        m.text(1, "key", &format!("node.kubernetes.io/{taint}"));
        m.text(2, "operator", "Exists");
        m.text(3, "value", "");
        m.text(4, "effect", "NoExecute");
        m.int(5, "tolerationSeconds", 300);
    });
    m.text(24, "priorityClassName", "");
    m.required_int(25, "priority", 0);
    m.required_flag(30, "enableServiceLinks", true);
    m.text(31, "preemptionPolicy", "PreemptLowerPriority");
}

fn volume(m: &mut Message<'_>, name: &str, source: impl FnOnce(&mut Message<'_>)) {
    m.text(1, "name", name);
    m.inline(2, source);
}

/// The volume that the service account admission plugin adds.
fn token_volume(m: &mut Message<'_>) {
    m.message(26, "projected", |m| {
        m.messages(1, "sources", 0..3, |m, at| match at {
            0 => m.message(4, "serviceAccountToken", |m| {
                m.text(1, "audience", "");
                m.int(2, "expirationSeconds", 3607);
                m.text(3, "path", "token");
            }),
            1 => m.message(3, "configMap", |m| {
                m.inline(1, |m| m.text(1, "name", "kube-root-ca.crt"));
                m.messages(2, "items", [()], |m, ()| {
                    m.text(1, "key", "ca.crt");
                    m.text(2, "path", "ca.crt");
                });
            }),
            _ => m.message(2, "downwardAPI", |m| {
                m.messages(1, "items", [()], |m, ()| {
                    m.text(1, "path", "namespace");
                    m.message(2, "fieldRef", |m| {
                        m.text(1, "apiVersion", "v1");
                        m.text(2, "fieldPath", "metadata.namespace");
                    });
                });
            }),
        });
        m.int(2, "defaultMode", 420);
    });
}

fn container(m: &mut Message<'_>, spec: &Container, token: Option<&str>) {
    m.text(1, "name", &spec.name);
    m.text(2, "image", &spec.image);
    m.texts(4, "args", ["--config=/etc/app/config.yaml", "--graceful-timeout=25s"]);
    m.text(5, "workingDir", "");
    m.messages(6, "ports", [("http", spec.port), ("metrics", spec.port + 1000)], |m, port| {
        m.text(1, "name", port.0);
        m.int(2, "hostPort", 0);
        m.required_int(3, "containerPort", i64::from(port.1));
        m.text(4, "protocol", "TCP");
        m.text(5, "hostIP", "");
    });
    m.messages(7, "env", &spec.environment, |m, (name, value)| {
        m.text(1, "name", name);
        m.text(2, "value", value);
    });
    m.message(8, "resources", |m| {
        m.quantity_map(1, "limits", [("cpu", spec.cpu.1), ("memory", spec.memory.1)]);
        m.quantity_map(2, "requests", [("cpu", spec.cpu.0), ("memory", spec.memory.0)]);
    });
    let mounts = [("config", "/etc/app"), ("tmp", "/tmp")].into_iter();
    let token = token.map(|name| (name, "/var/run/secrets/kubernetes.io/serviceaccount"));
    m.messages(9, "volumeMounts", mounts.chain(token), |m, (name, path)| {
        m.text(1, "name", name);
        m.flag(2, "readOnly", name != "tmp");
        m.text(3, "mountPath", path);
        m.text(4, "subPath", "");
        m.text(6, "subPathExpr", "");
    });
    probe(m, (10, "livenessProbe"), "/healthz", spec.port);
    probe(m, (11, "readinessProbe"), "/readyz", spec.port);
    m.text(13, "terminationMessagePath", "/dev/termination-log");
    m.text(14, "imagePullPolicy", "IfNotPresent");
    m.message(15, "securityContext", |m| {
        m.message(1, "capabilities", |m| m.texts(2, "drop", ["ALL"]));
        m.flag(6, "readOnlyRootFilesystem", true);
        m.required_flag(7, "allowPrivilegeEscalation", false);
    });
    m.flag(16, "stdin", false);
    m.flag(17, "stdinOnce", false);
    m.flag(18, "tty", false);
    m.text(20, "terminationMessagePolicy", "File");
}

fn probe(m: &mut Message<'_>, field: (u32, &str), path: &str, port: u32) {
    m.message(field.0, field.1, |m| {
        m.inline(1, |m| {
            m.message(2, "httpGet", |m| {
                m.text(1, "path", path);
                m.number_or_text(2, "port", i64::from(port));
                m.text(3, "host", "");
                m.text(4, "scheme", "HTTP");
            });
        });
        m.int(2, "initialDelaySeconds", 0);
        m.int(3, "timeoutSeconds", 1);
        m.int(4, "periodSeconds", 10);
        m.int(5, "successThreshold", 1);
        m.int(6, "failureThreshold", 3);
    });
}

fn spread_over_nodes(m: &mut Message<'_>, workload: &Workload) {
    m.message(3, "podAntiAffinity", |m| {
        m.messages(2, "preferredDuringSchedulingIgnoredDuringExecution", [()], |m, ()| {
            m.required_int(1, "weight", 100);
            m.message(2, "podAffinityTerm", |m| {
                app_selector(m, 1, "labelSelector", &workload.name);
                m.text(3, "topologyKey", "kubernetes.io/hostname");
            });
        });
    });
}
