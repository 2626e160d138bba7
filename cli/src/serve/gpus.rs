//! The GPUs that a process serves: each has a server in a thread of its own, with its own socket.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use baton_contract::memory::size;
use baton_contract::messages::DriverKind;
use baton_contract::wire::GpuNumber;
use baton_coordinator::device::gpu::Gpu;
use baton_coordinator::endpoint::{Endpoint, Passed, Unfit};
use baton_coordinator::keeper::{Inherited, Keeper};
use baton_coordinator::records::{self, Book};
use baton_coordinator::server::{Expected, Handle, Kept, Machine, OnStuck, Options, ServeError, Server};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::POISON;
use crate::records::called;
use crate::settings::{Mode, Settings, arena, headroom, host_pool};
use crate::web::Beside;
use crate::{CliError, host_memory, journal, named_socket, open_gpu, service, usual_socket};

/// How much later than another one a GPU may be ready.
const LATE: Duration = Duration::from_secs(20);

/// Things that all GPUs of a process have in common.
#[derive(Clone)]
pub(super) struct Common {
    pub(super) machine: Machine<Server>,
    /// Takes signals, which are heeded once all serve.
    pub(super) signals: signal_hook::iterator::Handle,
    pub(super) keeper: Keeper,
    pub(super) library: Option<PathBuf>,
    pub(super) driver: DriverKind,
    /// True if the coordinator before serves yet.
    pub(super) serves: bool,
    pub(super) until_idle: bool,
    pub(super) poison: bool,
    /// The number of GPUs that share the host's memory.
    pub(super) count: usize,
    /// True once a server has failed.
    pub(super) failed: Arc<AtomicBool>,
    pub(super) says: Sender<(GpuNumber, Said)>,
}

impl Common {
    /// Has signals wait until they can be heeded: from here on, a process that ended at once would leave its place behind.
    fn take_signals(&self) -> std::io::Result<()> {
        [SIGINT, SIGTERM, SIGHUP].into_iter().try_for_each(|signal| self.signals.add_signal(signal))
    }
}

/// A GPU that is to be served.
pub(super) struct Job {
    /// Its number among those that the settings name, and the driver's number.
    pub(super) at: GpuNumber,
    pub(super) number: usize,
    /// The settings as they are for this GPU.
    pub(super) settings: Settings,
    pub(super) passed: Option<Passed>,
    /// Left by the coordinator before, as far as it is there.
    pub(super) inherited: Inherited,
}

/// A word from a GPU's thread.
pub(super) enum Said {
    /// It has all that it needs, and waits for what the coordinator before has left.
    Prepared(Box<Ready>),
    /// It serves.
    Serves,
    /// It does not.
    Failed(NotServed),
    /// Another process goes on.
    HandsOver,
    /// It serves no more.
    Ended(Result<(), Failed>),
}

/// The reason why a server could not go on.
pub(super) struct Failed {
    error: ServeError,
    /// True if the keeper is to start another coordinator.
    is_followed: bool,
}

/// A GPU that can be served now.
pub(super) struct Ready {
    pub(super) name: String,
    pub(super) arena: u64,
    pub(super) host_pool: u64,
    pub(super) socket: PathBuf,
    pub(super) beside: Beside,
    pub(super) handle: Handle<Server>,
    pub(super) settings: Settings,
    /// Left by the coordinator before, if it does not serve any more.
    expected: Vec<Expected>,
}

/// The reason why a GPU is not served.
pub(super) struct NotServed {
    pub(super) error: CliError,
    /// The GPU's UUID, if there is no place for this coordinator, perhaps because another one has it.
    pub(super) taken: Option<[u8; 16]>,
    /// How often it could not be taken over before.
    pub(super) failures: u8,
}

impl<E: Into<CliError>> From<E> for NotServed {
    fn from(error: E) -> Self {
        Self { error: error.into(), taken: None, failures: 0 }
    }
}

/// GPUs that are not served, with the driver's numbers.
type Missing = BTreeMap<GpuNumber, (usize, NotServed)>;

/// The GPUs' threads.
pub(super) struct Servers {
    all: BTreeMap<GpuNumber, One>,
    heard: Receiver<(GpuNumber, Said)>,
    /// Said while others began.
    early: Vec<(GpuNumber, Said)>,
}

struct One {
    number: usize,
    ready: Ready,
    begin: Sender<Inherited>,
}

/// The end of all servers.
pub(super) enum Ended {
    /// Another process goes on.
    Followed {
        /// This one's exit code.
        code: i32,
    },
    /// They were to end, or one of them could not go on.
    ByThemselves(Result<(), ServeError>),
}

impl Servers {
    /// Starts a thread for each GPU, and waits until it has all that it needs, or fails.
    ///
    /// # Errors
    ///
    /// When the system gives no thread.
    pub(super) fn prepare(
        jobs: Vec<Job>,
        common: &Common,
        heard: Receiver<(GpuNumber, Said)>,
    ) -> std::io::Result<(Self, Missing)> {
        let mut begun = BTreeMap::new();
        for job in jobs {
            let ((begin, begins), common) = (channel(), common.clone());
            let (at, number) = (job.at, job.number);
            std::thread::Builder::new().name(format!("gpu {number}")).spawn(move || serve(job, &common, &begins))?;
            begun.insert(at, (number, begin));
        }
        let (mut all, mut failed) = (BTreeMap::new(), BTreeMap::new());
        // When one is ready, the others have this time more: a driver may hang for one GPU.
        let mut until: Option<Instant> = None;
        while !begun.is_empty() {
            let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            let Ok((at, said)) = heard.recv_timeout(left) else {
                let late = |(number, _)| (number, NotServed::from(baton_messages::gpu_is_not_ready(LATE.as_secs())));
                failed.extend(std::mem::take(&mut begun).into_iter().map(|(at, one)| (at, late(one))));
                break;
            };
            until = until.or(Some(Instant::now() + LATE));
            let Some((number, begin)) = begun.remove(&at) else { continue };
            match said {
                Said::Prepared(ready) => drop(all.insert(at, One { number, ready: *ready, begin })),
                Said::Failed(why) => drop(failed.insert(at, (number, why))),
                Said::Serves | Said::Ended(_) | Said::HandsOver => unreachable!("it waits for its beginning"),
            }
        }
        Ok((Self { all, heard, early: Vec::new() }, failed))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The driver's numbers, and what is known of each GPU.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Ready)> {
        self.all.values().map(|one| (one.number, &one.ready))
    }

    /// Takes the files and sockets beside the GPUs' sockets.
    pub(super) fn take_beside(&mut self) -> Vec<Beside> {
        self.all.values_mut().map(|one| std::mem::take(&mut one.ready.beside)).collect()
    }

    /// Has all go on with what the coordinator before has left since, and waits until they serve.
    ///
    /// # Errors
    ///
    /// When one of them cannot.
    pub(super) fn begin(&mut self, common: &Common, rest: &mut BTreeMap<GpuNumber, Inherited>) -> Result<(), CliError> {
        let expected_on = |(at, one): (&GpuNumber, &mut One)| {
            let expected = match common.serves {
                true => rest.get(at).map(Server::expected_of).unwrap_or_default(),
                false => std::mem::take(&mut one.ready.expected),
            };
            expected.into_iter().map(|one| (*at, one)).collect::<Vec<_>>()
        };
        let expected: Vec<(GpuNumber, Expected)> = self.all.iter_mut().flat_map(expected_on).collect();
        common.machine.expect(&expected);
        for (at, one) in &self.all {
            // It says so itself if it cannot.
            let _ = one.begin.send(rest.remove(at).unwrap_or_default());
        }
        let mut begins: BTreeSet<GpuNumber> = self.all.keys().copied().collect();
        while !begins.is_empty() {
            match self.heard.recv() {
                // One that was late: the others have gone on without it.
                Ok((at, _)) if !self.all.contains_key(&at) => {}
                Ok((at, Said::Serves)) => drop(begins.remove(&at)),
                Ok((_, Said::Failed(why))) => return Err(why.error),
                // One that has begun may have ended already.
                Ok(ended) => self.early.push(ended),
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// Waits until all have ended, or others go on in their place.
    pub(super) fn end(self) -> Ended {
        let (mut first, mut handed_over) = (Ok(()), 0);
        let (mut early, mut all) = (self.early.into_iter(), self.all);
        while let Some((at, said)) =
            (!all.is_empty()).then(|| early.next().or_else(|| self.heard.recv().ok())).flatten()
        {
            match said {
                // One that was late.
                _ if !all.contains_key(&at) => continue,
                Said::Ended(Err(error)) if error.is_followed => {
                    baton_messages::error!(another_goes_on(error.error));
                    return Ended::Followed { code: 1 };
                }
                Said::Ended(Err(error)) => first = first.and(Err(error.error)),
                Said::HandsOver => handed_over += 1,
                Said::Ended(Ok(())) => {}
                Said::Prepared(_) | Said::Serves | Said::Failed(_) => continue,
            }
            all.remove(&at);
        }
        if handed_over > 0 { Ended::Followed { code: 0 } } else { Ended::ByThemselves(first) }
    }
}

/// Serves a GPU, from this thread.
fn serve(job: Job, common: &Common, begins: &Receiver<Inherited>) {
    let (at, records, is_anew) = (job.at, job.settings.no_record != Some(true), job.inherited.place.is_none());
    let failures = job.inherited.failures;
    if common.count > 1 {
        journal::name_gpu(job.number);
    }
    // It goes unheard if the process ends.
    let say = |said| drop(common.says.send((at, said)));
    let begun = prepare(job, common).and_then(|(mut server, ready, inherited)| {
        say(Said::Prepared(ready));
        let Ok(rest) = begins.recv() else {
            // The process ends before it has served. Others' places are theirs.
            if is_anew {
                server.leave();
            }
            return Ok(None);
        };
        server.begin(if common.serves { rest } else { inherited })?;
        // Its place is given up where that is said, and not on an error: with a keeper, another one goes on there.
        Ok(Some(ManuallyDrop::new(server)))
    });
    let mut server = match begun {
        Ok(Some(server)) => server,
        Ok(None) => return,
        Err(why) => return say(Said::Failed(NotServed { failures, ..why })),
    };
    let kept = records.then(|| record(&mut server)).flatten();
    common.keeper.of(at).note_success();
    say(Said::Serves);
    let served = server.serve();
    let is_followed = served.is_err() && common.keeper.is_any();
    if is_followed || server.hands_over() {
        server.end_record();
        kept.into_iter().for_each(Kept::end);
        return say(served.map_or_else(|error| Said::Ended(Err(Failed { error, is_followed })), |()| Said::HandsOver));
    }
    common.failed.fetch_or(served.is_err(), Ordering::Relaxed);
    server.leave();
    common.keeper.of(at).leave();
    if common.machine.is_empty() {
        common.keeper.end_with(u8::from(common.failed.load(Ordering::Relaxed)));
        service::stopping();
    }
    if let Some(left) = server.left_behind() {
        baton_messages::warn!(left);
    }
    drop(ManuallyDrop::into_inner(server));
    kept.into_iter().for_each(Kept::end);
    say(Said::Ended(served.map_err(|error| Failed { error, is_followed })));
}

/// Takes a GPU and a place for this process, but nothing that the coordinator before may still use.
fn prepare(job: Job, common: &Common) -> Result<(Server, Box<Ready>, Inherited), NotServed> {
    let Job { at, number, settings: all, passed, mut inherited } = job;
    let set = "a setting that is usual";
    let gpu = open_gpu(common.library.as_deref(), number)?;
    let (guests, visitors) = all.guests()?;
    let (arena, host_pool) = match inherited.sizes(common.serves)? {
        // Other settings hold only when all programs have gone: theirs would not fit.
        Some(sizes) => sizes,
        None => {
            let arena = arena(all.arena.expect(set), gpu.memory, &gpu.name)?;
            let free = host_memory::free()? / common.count as u64;
            (arena, host_pool(all.host_pool, arena, free, all.force.expect(set))?)
        }
    };
    let headroom = headroom(all.headroom.expect(set), arena)?;
    let taken = |error: Unfit| NotServed { error: error.into(), taken: Some(gpu.uuid), failures: 0 };
    common.take_signals()?;
    let endpoint = match (inherited.place.take(), passed) {
        (Some(place), passed) => Endpoint::go_on(place, gpu.uuid, visitors, passed.is_some()),
        (None, Some(passed)) => Endpoint::claim_passed(passed, gpu.uuid),
        (None, None) => {
            let named = all.socket.clone().or_else(named_socket);
            let path = std::path::absolute(named.unwrap_or_else(|| usual_socket(gpu.uuid)))?;
            Endpoint::claim(&path, gpu.uuid, visitors)
        }
    };
    let endpoint = endpoint.map_err(taken)?;
    let socket = endpoint.path().to_path_buf();
    if at == GpuNumber::FIRST {
        journal::keep_small(&socket);
    }
    // This coordinator's own memory is what has been taken over.
    if inherited.frames.is_empty() && !common.serves {
        say_who_is_in_the_way(&gpu, arena);
    }
    let options = Options {
        number: u32::try_from(number).unwrap_or(u32::MAX),
        arena,
        host_pool,
        headroom,
        tuning: all.tuning(),
        driver: common.driver,
        pipeline: all.pipeline.expect(set).0,
        hash: !all.no_hash.expect(set),
        keep: !all.no_keep.expect(set),
        pause: !all.no_preempt.expect(set),
        corun: all.mode.expect(set) == Mode::Corun,
        trace: all.trace.as_deref().map(|path| trace_of(path, at)),
        poison: common.poison.then_some(POISON),
        quotas: all.quotas(arena, host_pool, gpu.memory),
        guests,
        isolation: all.isolation.expect(set).0,
        on_stuck: OnStuck { what: all.on_stuck.map(|what| what.0), after: all.stuck_after.expect(set).0 },
        until_idle: common.until_idle,
    };
    let (name, beside) = (gpu.name.clone(), Beside::of(&endpoint, &all, at == GpuNumber::FIRST)?);
    let left = (common.keeper.of(at), &mut inherited, common.serves);
    let server = Server::new((at, common.machine.clone()), gpu, endpoint, options, left)?;
    let (handle, expected) = (server.handle(), Server::expected_of(&inherited));
    Ok((server, Box::new(Ready { name, arena, host_pool, socket, beside, handle, settings: all, expected }), inherited))
}

/// The trace of a GPU: its own file, if there are others.
fn trace_of(path: &Path, at: GpuNumber) -> PathBuf {
    let mut path = path.to_owned();
    if at != GpuNumber::FIRST {
        path.as_mut_os_string().push(format!(".{}", at.0));
    }
    path
}

/// Records events in the user's state folder. A failure to do so stops nothing else.
fn record(server: &mut Server) -> Option<Kept> {
    let head = server.head();
    let name = called(head.started_unix_ms, &head.gpu);
    let kept = match records::state_folder() {
        Some(state) => Book::begin(&state, &name, head).map_err(CliError::from),
        None => Err(baton_messages::no_home().into()),
    };
    let kept = kept.and_then(|book| Ok(server.keep(book)?));
    kept.inspect_err(|error| baton_messages::warn!(nothing_is_recorded(error))).ok()
}

/// Warns if there is less memory than the arena is to have, and names the processes that have it.
fn say_who_is_in_the_way(gpu: &Gpu, arena: u64) {
    let Ok(free) = gpu.free_memory() else { return };
    if free >= arena {
        return;
    }
    let others = gpu.census.others(gpu.uuid).unwrap_or_default();
    let who: Vec<String> = others.iter().take(8).map(ToString::to_string).collect();
    let who = if who.is_empty() { baton_messages::UNSEEN_PROCESSES.to_owned() } else { who.join(", ") };
    baton_messages::warn!(little_gpu_memory_is_free(size(arena), size(free), who));
}
