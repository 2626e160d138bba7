//! What is read of a coordinator's status. Names are the coordinator's own.

use serde::Deserialize;

/// How things stand.
#[derive(Deserialize)]
pub struct Status {
    /// The GPU memory that is lent out.
    pub arena: Arena,
    pub(crate) host_pool: Pool,
    /// How often the GPU changed hands.
    pub switches: u64,
    /// How often work was taken off the GPU in the middle.
    pub preemptions: u64,
    /// Copied to the device.
    pub bytes_in: u64,
    /// Copied to the host.
    pub bytes_out: u64,
    /// How long things took.
    pub times: Times,
    /// Who is there.
    pub tenants: Vec<Present>,
    /// The last switches, oldest first.
    pub recent: Vec<Switch>,
    departed: Vec<Departed>,
}

/// How long things took, since the coordinator began.
#[derive(Deserialize)]
pub struct Times {
    /// Switches: from the decision to the open gate.
    pub switch: Summary,
}

/// Times of one kind, in milliseconds; none if there were none.
#[derive(Deserialize)]
pub struct Summary {
    /// The median.
    pub p50: Option<f64>,
    /// The longest.
    pub max: Option<f64>,
}

/// The GPU memory that is lent out.
#[derive(Deserialize)]
pub struct Arena {
    /// Its size.
    pub bytes: u64,
}

#[derive(Deserialize)]
pub(crate) struct Pool {
    pub(crate) bytes: u64,
    pub(crate) ready_bytes: u64,
}

/// A tenant.
#[derive(Deserialize)]
pub struct Present {
    /// Its name.
    pub name: String,
    /// In a word, as `baton status` shows it.
    pub state: String,
    /// All its memory.
    pub bytes: u64,
    /// What of that is not on the GPU.
    pub evicted_bytes: u64,
    /// Whether its work can be taken off the GPU in the middle.
    pub preemptible: bool,
}

/// One change of the baton's holder.
#[derive(Clone, Debug, Deserialize)]
pub struct Switch {
    /// Counts all switches since the start.
    pub n: u64,
    /// Who has the baton then.
    pub to: String,
    /// Copied to the device.
    pub bytes_in: u64,
    /// Copied to the host meanwhile.
    pub bytes_out: u64,
    /// In how many pieces the memory came.
    pub groups: u64,
    /// Of how many extents that was.
    pub extents: u64,
    /// Calls that had to wait for memory.
    pub waits: u64,
    /// How long they waited, all together.
    pub waited_ms: f64,
    /// When what happened.
    pub phases: Phases,
}

/// What happened when, since the incoming program wanted the GPU; none: it did not happen.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs, reason = "they are the coordinator's words")]
pub struct Phases {
    pub decided_ms: Option<f64>,
    pub granted_ms: Option<f64>,
    pub first_extent_ms: Option<f64>,
    pub first_launch_ms: Option<f64>,
    pub all_resident_ms: Option<f64>,
}

#[derive(Deserialize)]
struct Departed {
    name: String,
    peak_bytes: u64,
}

impl Status {
    /// A program that is there.
    pub fn tenant(&self, name: &str) -> Option<&Present> {
        self.tenants.iter().find(|tenant| tenant.name == name)
    }

    /// The most memory that a program had; none if it did not come, or has not left.
    pub fn peak_bytes(&self, name: &str) -> Option<u64> {
        self.departed.iter().find(|departed| departed.name == name).map(|departed| departed.peak_bytes)
    }
}
