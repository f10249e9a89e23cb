//! The origin that a DogStatsD client states in a line. Clients may state anything, so the work is linear in its length.

/// The longest container ID, and the longest UID of a pod.
const MAX_ID: usize = 128;

/// The container that a line names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerClaim<'a> {
    /// The ID of the container: `c:ID` or `c:ci-ID`.
    Id(&'a str),
    /// The inode of its cgroup on this node: `c:in-INODE`.
    Inode(u64),
}

/// The origin that a line states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim<'a> {
    /// The container.
    pub container: Option<ContainerClaim<'a>>,
    /// The UID of the pod, from external data: `e:it-INIT,cn-CONTAINER,pu-UID`.
    pub pod_uid: Option<&'a str>,
}

impl<'a> Claim<'a> {
    /// Parses the sections `c:` and `e:` among sections that each begin with `|`. The last one of each wins.
    #[must_use]
    pub fn parse(sections: &'a [u8]) -> Self {
        let mut claim = Self::default();
        for section in sections.split(|byte| *byte == b'|') {
            let Ok(section) = std::str::from_utf8(section) else { continue };
            if let Some(id) = section.strip_prefix("c:") {
                claim.container = container(id);
            } else if let Some(data) = section.strip_prefix("e:") {
                let uid = data.split(',').find_map(|item| item.strip_prefix("pu-"));
                claim.pod_uid = uid.filter(|uid| is_id(uid));
            }
        }
        claim
    }
}

fn is_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= MAX_ID
}

fn container(id: &str) -> Option<ContainerClaim<'_>> {
    if let Some(inode) = id.strip_prefix("in-") {
        return inode.parse().ok().map(ContainerClaim::Inode);
    }
    let id = id.strip_prefix("ci-").unwrap_or(id);
    is_id(id).then_some(ContainerClaim::Id(id))
}
