//! Finds the exporters among the workloads of a cluster: which program a container runs, with which command line and
//! files.

use serde_json::Value;

use super::inventory::{Inventory, Selection};
use crate::cli::config::Name;
use crate::tools::manifests::Manifest;

/// The labels that name a program.
const LABELS: [&str; 3] = ["app.kubernetes.io/name", "k8s-app", "app"];

/// The programs in kstatd's images (deploy/root-fs.sh).
const IMAGE_PROGRAMS: [&str; 3] = ["/kstatd", "/kube-state-metrics", "/bin/statsd_exporter"];

/// An exporter: a container of a Deployment, StatefulSet or DaemonSet.
pub(crate) struct Workload<'o> {
    pub(crate) manifest: &'o Manifest,
    pub(crate) program: Name,
    /// True if the image is kstatd's.
    pub(crate) runs_kstatd: bool,
    pub(crate) container: &'o Value,
    /// The arguments after the name of the program, with variables replaced.
    pub(crate) argv: Vec<String>,
    /// Unknown parts of the command line, and commands that kstatd's image does not have.
    pub(crate) doubts: Vec<String>,
}

/// Why a file of a container is not known.
pub(crate) enum FileError {
    /// It does not exist.
    Missing(String),
    /// It is not in the input.
    Unknown(String),
}

/// Returns the exporters that the user asks about.
pub(crate) fn find<'o>(inventory: &'o Inventory, selection: &Selection) -> Vec<Workload<'o>> {
    inventory.objects.iter().filter_map(|manifest| of(manifest, selection)).collect()
}

/// Returns the exporter in a workload that the user asks about. One asked for by name may have any image; its flags
/// tell the program.
pub(crate) fn of<'o>(manifest: &'o Manifest, selection: &Selection) -> Option<Workload<'o>> {
    let is_workload = manifest.api_version == "apps/v1"
        && matches!(manifest.kind.as_str(), "Deployment" | "StatefulSet" | "DaemonSet");
    if !is_workload || !selection.includes(manifest) {
        return None;
    }
    let template = &manifest.object["spec"]["template"];
    let containers = template["spec"]["containers"].as_array()?;
    let exact = containers.iter().find_map(|one| Some((one, of_container(one)?)));
    let labels = [&template["metadata"]["labels"], &manifest.object["metadata"]["labels"]];
    let labelled = || {
        let values = labels.iter().flat_map(|labels| LABELS.map(|label| labels[label].as_str()));
        values.flatten().find_map(named)
    };
    let (container, program) = match exact {
        // Under kstatd's image, the labels tell which program it stands in for.
        Some((one, Name::Kstatd)) if one["command"].is_null() => {
            (one, labelled().unwrap_or(Name::Kstatd))
        }
        Some(found) => found,
        None => {
            let is_proxy = |one: &Value| {
                one["image"].as_str().is_some_and(|image| image.contains("kube-rbac-proxy"))
            };
            let main = containers
                .iter()
                .find(|one| one["name"].as_str().and_then(named).is_some())
                .or_else(|| containers.iter().find(|one| !is_proxy(one)))?;
            let by_flags = || {
                let is_statsd = |arg: &String| arg.starts_with("--statsd.");
                let is_statsd = texts(&main["args"]).iter().any(is_statsd);
                if is_statsd { Name::StatsdExporter } else { Name::KubeStateMetrics }
            };
            (main, labelled().or_else(|| selection.workload.as_ref().map(|_| by_flags()))?)
        }
    };
    let is_kstatd = |image: &str| image.split(['/', ':', '@']).any(|part| part == "kstatd");
    let mut workload = Workload {
        manifest,
        program,
        runs_kstatd: container["image"].as_str().is_some_and(is_kstatd),
        container,
        argv: Vec::new(),
        doubts: Vec::new(),
    };
    workload.read_command();
    Some(workload)
}

/// Returns the program that a container runs, by its command, else by its image.
fn of_container(container: &Value) -> Option<Name> {
    let command = container["command"][0].as_str().and_then(|path| path.rsplit('/').next());
    let image = || {
        let image = container["image"].as_str()?.split('@').next()?;
        image.rsplit('/').next()?.split(':').next()
    };
    command.and_then(named).or_else(|| named(image()?))
}

/// Returns the program with this name.
fn named(name: &str) -> Option<Name> {
    let name = name.replace('_', "-");
    if name == "kstatd" {
        Some(Name::Kstatd)
    } else if name.ends_with("kube-state-metrics") {
        Some(Name::KubeStateMetrics)
    } else if name.ends_with("statsd-exporter") {
        Some(Name::StatsdExporter)
    } else {
        None
    }
}

/// Returns the items of an array; there are none in anything else.
pub(crate) fn items(value: &Value) -> std::slice::Iter<'_, Value> {
    value.as_array().map_or(&[][..], Vec::as_slice).iter()
}

/// Returns the strings of an array.
pub(crate) fn texts(value: &Value) -> Vec<String> {
    // Unquoted numbers and booleans in a manifest are strings to their author.
    let text = |item: &Value| item.as_str().map_or_else(|| item.to_string(), str::to_owned);
    items(value).map(text).collect()
}

impl<'o> Workload<'o> {
    pub(crate) fn namespace(&self) -> Option<&'o str> {
        self.manifest.name().0
    }

    /// Returns kind, namespace and name.
    pub(crate) fn title(&self) -> String {
        let (namespace, name) = self.manifest.name();
        let namespace = namespace.map(|it| format!("{it}/")).unwrap_or_default();
        format!("{} {namespace}{}", self.manifest.kind, name.unwrap_or_default())
    }

    /// Returns the template of its pods.
    pub(crate) fn template(&self) -> &'o Value {
        &self.manifest.object["spec"]["template"]
    }

    pub(crate) fn pod(&self) -> &'o Value {
        &self.template()["spec"]
    }

    /// Returns the name of its service account.
    pub(crate) fn service_account(&self) -> &'o str {
        let pod = self.pod();
        let names = [&pod["serviceAccountName"], &pod["serviceAccount"]];
        let mut names = names.iter().filter_map(|name| name.as_str());
        names.find(|name| !name.is_empty()).unwrap_or("default")
    }

    /// Returns whether its listeners use TLS, by its flags and probes.
    pub(crate) fn is_tls(&self) -> bool {
        let probes = ["startupProbe", "livenessProbe", "readinessProbe"];
        let flags = ["--tls-config", "--web.config.file"];
        probes.iter().any(|probe| self.container[probe]["httpGet"]["scheme"] == "HTTPS")
            || self.argv.iter().any(|arg| flags.iter().any(|flag| arg.starts_with(flag)))
    }

    /// Returns the number of pods.
    pub(crate) fn replicas(&self) -> u64 {
        self.manifest.object["spec"]["replicas"].as_u64().unwrap_or(1)
    }

    /// Reads the command line of the container. That of another program, such as a shell, is not read.
    fn read_command(&mut self) {
        let mut words = texts(&self.container["command"]);
        if !words.is_empty() {
            let path = words.remove(0);
            let is_known = path.rsplit('/').next().and_then(named).is_some();
            if !is_known || path.contains('/') && !IMAGE_PROGRAMS.contains(&path.as_str()) {
                self.doubts.push(format!(
                    "the command {path:?} is not in kstatd's image, which has only {}",
                    IMAGE_PROGRAMS.join(", ")
                ));
            }
            if !is_known {
                return;
            }
        }
        words.extend(texts(&self.container["args"]));
        // kstatd takes the name of a program as its first argument.
        let first = words.first().filter(|word| !word.starts_with('-'));
        if (self.runs_kstatd || self.program == Name::Kstatd)
            && let Some(program) = first.and_then(|word| named(word))
        {
            self.program = program;
            words.remove(0);
        }
        self.argv = words.iter().map(|word| self.expand(word)).collect();
    }

    /// Replaces `$(NAME)` by the variables of the container, as the kubelet does. `$$` becomes `$`. Unknown variables stay.
    fn expand(&mut self, word: &str) -> String {
        let (mut out, mut rest) = (String::new(), word);
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                out.push('$');
                rest = after;
            } else if let Some((name, after)) =
                rest.strip_prefix('(').and_then(|inner| inner.split_once(')'))
            {
                match self.variable(name) {
                    Some(value) => out.push_str(&value),
                    None => {
                        self.doubts.push(format!("the variable {name} in {word:?} is not known"));
                        out.push_str(&format!("$({name})"));
                    }
                }
                rest = after;
            } else {
                out.push('$');
            }
        }
        out + rest
    }

    fn variable(&self, name: &str) -> Option<String> {
        let variables = self.container["env"].as_array()?;
        let variable = variables.iter().rev().find(|one| one["name"] == name)?;
        if let Some(value) = variable["value"].as_str() {
            return Some(value.to_owned());
        }
        let (namespace, name) = self.manifest.name();
        match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str()? {
            "metadata.name" => Some(format!("{}-0", name?)),
            "metadata.namespace" => Some(namespace.unwrap_or("default").to_owned()),
            "spec.nodeName" => Some("node".to_owned()),
            "spec.serviceAccountName" => Some(self.service_account().to_owned()),
            _ => None,
        }
    }

    /// Returns the names of the config maps that its volumes show.
    pub(crate) fn config_maps(&self) -> impl Iterator<Item = String> + use<'o> {
        let names = items(&self.pod()["volumes"]).flat_map(|volume| {
            let projected = items(&volume["projected"]["sources"]);
            let projected = projected.map(|source| &source["configMap"]["name"]);
            projected.chain([&volume["configMap"]["name"]])
        });
        names.filter_map(|name| name.as_str().map(str::to_owned))
    }

    /// Returns the content of a file of the container, which must come from a config map.
    ///
    /// # Errors
    /// The file does not exist, or is not in the input.
    pub(crate) fn file(&self, inventory: &Inventory, path: &str) -> Result<String, FileError> {
        let below = |mount: &&Value| {
            let place = mount["mountPath"].as_str()?.trim_end_matches('/');
            let rest = path.strip_prefix(place)?;
            (rest.is_empty() || rest.starts_with('/')).then(|| rest.trim_start_matches('/'))
        };
        let mount = items(&self.container["volumeMounts"])
            .filter_map(|mount| Some((mount, below(&mount)?)))
            .max_by_key(|(mount, _)| mount["mountPath"].as_str().map(str::len));
        let Some((mount, rest)) = mount else {
            return Err(FileError::Unknown("no volume shows it".to_owned()));
        };
        // A mount of a single file names it in subPath.
        let name = match mount["subPath"].as_str().filter(|path| !path.is_empty()) {
            Some(file) if rest.is_empty() => file,
            Some(_) => return Err(FileError::Unknown("the volume has a subPath".to_owned())),
            None => rest,
        };
        let mut volumes = items(&self.pod()["volumes"]);
        let Some(volume) = volumes.find(|volume| volume["name"] == mount["name"]) else {
            return Err(FileError::Missing(format!("there is no volume {}", mount["name"])));
        };
        let sources: Vec<&Value> = match volume["projected"]["sources"].as_array() {
            Some(sources) => sources.iter().map(|source| &source["configMap"]).collect(),
            None => vec![&volume["configMap"]],
        };
        let mut last = None;
        for source in sources.into_iter().filter(|source| !source.is_null()) {
            match self.key(inventory, source, name) {
                Ok(text) => return Ok(text),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| {
            FileError::Unknown(format!("the volume {} is not a config map", volume["name"]))
        }))
    }

    /// Returns the value of a config map that a volume shows as this file.
    fn key(&self, inventory: &Inventory, source: &Value, file: &str) -> Result<String, FileError> {
        let map = source["name"].as_str().unwrap_or_default();
        let Some(found) = inventory.config_map(self.namespace(), map) else {
            return Err(FileError::Unknown(format!("the config map {map} is not in the input")));
        };
        let missing = || FileError::Missing(format!("the config map {map} has no such file"));
        let key = match source["items"].as_array() {
            Some(items) => {
                let item = items.iter().find(|item| item["path"] == file).ok_or_else(missing)?;
                item["key"].as_str().unwrap_or_default()
            }
            None => file,
        };
        let text = found.object["data"][key].as_str().ok_or_else(missing)?;
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_the_image_match_its_script() {
        let script = include_str!("../../../deploy/root-fs.sh");
        for program in IMAGE_PROGRAMS {
            assert!(script.contains(&format!("\"$root{program}\"\n")), "{program}");
        }
    }
}
