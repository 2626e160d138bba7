//! Messages of the coordinator's log.

use crate::catalogue::group;

group! {
    "The coordinator's log";
    "Lines marked WARN and ERROR. The name at the beginning is the program's, as `baton status` shows it.";

    section "Settings that are read again"; "";

    topic {
        message B0501 settings_stay(error) = "the settings stay as they are: {error}";
    }
    cause "The file with the settings cannot be read, or says what cannot be. The coordinator goes on with those that it has.";
    remedy "Mend the file and have it read again (`systemctl reload`, or SIGHUP).";

    topic {
        message B0502 no_file_to_read_again() = "the settings stay as they are: there is no file to read again (--config)";
    }
    cause "The coordinator got all its settings from the command line and from variables.";
    remedy "Start it with `--config FILE.toml`.";

    topic {
        message B0503 settings_of_another(user) = "this file belongs to user {user}; use one of yours or root's";
        message B0504 all_can_write_settings(mode) = "every user can write this file (mode {mode}); `chmod o-w` it";
    }
    cause "A file of settings decides what the coordinator opens and writes. So it takes none that another user may have \
           written.";
    remedy "Do what the message says.";

    topic {
        message B0505 service_manager_is_not_told(error) = "the service manager cannot be told the state of this coordinator: {error}";
    }
    cause "The socket that `NOTIFY_SOCKET` names does not take messages. Programs are served all the same; the service manager may take \
           the \
           coordinator for one that does not start.";
    remedy "Unset the variable where no service manager has set it.";

    topic {
        message B0506 settings_from_now_on(settings) = "from now on: {settings}";
        message B0507 settings_after_a_restart(settings) = "after a restart: {settings}";
        message B0508 settings_are_as_they_were() = "the settings are as they were";
    }
    cause "The file with the settings was read again. Those after *from now on* hold; those after *after a restart* need a new \
           coordinator.";

    section "Memory"; "";

    topic {
        message B0510 got_no_memory(program, mib, why) = "{program} asked for {mib} MiB and got none: {why}";
        part B0511 more_than_the_arena(mib) = "with its {mib} MiB that is more than the arena";
    }
    cause "The program needs more than the arena, and its call answered *out of memory*.";
    remedy "Give it less to do (a smaller batch), or start the coordinator with a larger `--arena`.";

    topic {
        part B0512 no_room(kept) = "arena and host pool together have no room{kept}; a larger --host-pool would help";
        part B0513 kept_for_others(bytes) = ", with {bytes} that are kept for others (`baton run --needs`)";
    }
    cause "All programs together need more than there is.";
    remedy "Start the coordinator with a larger `--host-pool`, or run fewer programs; or have them wait instead: `baton run --needs 14GB`. \
            Memory that such programs need is kept for them, also before they use it.";

    topic {
        part B0514 MEMORY_IS_HELD = "the memory for it is held by a program that does not give it back";
    }
    cause "A program whose context is broken, or whose connection has ended, keeps its memory. Or others can reach memory of a program, \
           which \
           therefore stays on the GPU: it is part of *unmanaged* in `baton status`.";
    remedy "End the program; other messages name it.";

    topic {
        message B0515 waits_for_memory_of(program, mib, holder) =
            "{program} waits for {mib} MiB of {holder}, which does not answer";
    }
    cause "The second program was stopped (`Ctrl-Z`, a debugger), or the machine is so busy that it does not run. The first one's \
           allocation \
           goes on waiting until it answers or ends.";
    remedy "Let it go on, or end it.";

    topic {
        message B0516 cannot_watch(error) = "a connection cannot be watched: {error}";
    }
    cause "The system refuses the coordinator another descriptor to watch.";
    remedy "Raise `fs.epoll.max_user_watches`, or run fewer programs.";

    topic {
        message B0517 others_can_reach(program, mib) =
            "{program} has {mib} MiB that others can reach: they stay on the GPU until it frees them";
        message B0518 does_not_fit_beside(program, mib, holder) =
            "{program} does not fit beside the {mib} MiB of {holder} that cannot move, and has to wait";
    }
    cause "A program has let another process or device, or itself by other addresses, reach memory that Baton gives out. It cannot be \
           moved \
           any more, and no other program gets that part of the arena. Programs that need more than the rest wait until it is freed.";
    remedy "Raise `--arena`, or run the two programs one after the other.";

    topic {
        message B0519 are_united(one, other) = "{one} and {other} share memory or events: they take their turns together";
    }
    cause "A remark. One program has opened memory or an event of the other (`cuIpcOpenMemHandle`, `torch.multiprocessing`), or imports \
           memory by a descriptor from it (`cuMemImportFromShareableHandle`). From then on they get the GPU together and leave it together, \
           and what both have has to fit the arena.";

    topic {
        message B0520 cannot_be_united(one, other, mib) =
            "{one} and {other} cannot run together: they have {mib} MiB, and the arena has no room for that";
    }
    cause "One program wanted to open memory of the other, and was told that there is no memory; if it was an event, or memory by a \
           descriptor, it has it, and the two take turns.";
    remedy "Raise `--arena`, or have them use less.";

    topic {
        message B0521 keeps_shared_memory(program) = "{program} keeps memory that it shared with a program that no longer has it";
    }
    cause "A remark. The program that had allocated the memory has freed it or ended while another one had it open.";

    topic {
        message B0522 no_room_to_evict() = "an eviction on request has no room on the host";
    }
    cause "`baton evict` found the host pool full.";
    remedy "Start the coordinator with a larger `--host-pool`.";

    topic {
        message B0523 arena_is_smaller(error) = "the arena is smaller for now: {error}";
    }
    cause "Contexts, code and unmanaged memory have taken what was to be the arena's. Programs get less, and switches become more \
           frequent. \
           It grows back when they give it up.";
    remedy "`baton status` shows who has how much, and why it stays: in the line *beside it*, the column *unmanaged* and the lines below \
            the \
            table.";

    topic {
        message B0524 got_no_lease(program, mib) = "{program} asked for {mib} MiB outside the arena, and no other program can give it";
    }
    cause "A program wanted an array, or other memory that Baton does not move, and got the driver's error for too little memory. The \
           arena \
           can only shrink until the largest of the programs just fits it. `baton status` shows what takes the rest of the GPU, in the line \
           *beside it*.";
    remedy "Free some of that, or run fewer programs at once.";

    topic {
        message B0525 host_pool_ends_at(mib, why) = "the host pool ends at {mib} MiB: {why}";
        part B0526 THE_COORDINATOR_ENDS = "the coordinator ends";
    }
    cause "The system or the driver gave no more pinned memory. The coordinator works with what it has. While the coordinator ends, this \
           means nothing.";
    remedy "Ask for less with `--host-pool`, or raise the container's limits.";

    topic {
        message B0527 copy_failed(lane, error) = "a copy failed ({lane}): {error}";
        message B0528 release_failed(error) = "releasing memory: {error}";
        message B0529 scan_failed(error) = "scanning memory failed: {error}";
    }
    cause "The driver failed, twice. After a failed copy of a program's memory, another coordinator tries again; without a keeper, or if \
           that fails too, the program is killed. After a failed scan, everything is copied and programs wait for all of their memory: \
           right, but slower.";
    remedy "Look at the system's log for the GPU's errors (`Xid`), and start the coordinator again.";

    topic {
        message B0530 cannot_map(program, code) = "{program} cannot map or unmap (CUDA error {code}): its memory stays until it ends";
        message B0531 cannot_carry_out() = "it cannot carry out its commands";
    }
    cause "The program's context is broken, mostly by a kernel that accessed memory it does not have. Its calls fail.";
    remedy "End it. If it works without Baton, set `BATON_GATE=whole` for it ([limits.md](limits.md)).";

    topic {
        message B0532 claim_is_stuck(program, what) =
            "{program} waits for memory, and none has come for a while (still: {what}); others have their turns first";
    }
    cause "Memory of another program is on the way to the host, or frames are made, and neither gets any further: the machine is very \
           busy, or a program was stopped. The program asks again, and goes on when memory is free.";
    remedy "None is needed if the machine is busy. `baton why` says for whose memory it waits.";

    topic {
        message B0533 gpu_is_not_served(number, error) = "GPU {number} is not served: {error}";
        message B0534 gpu_is_not_ready(seconds) = "it is not ready, {seconds} s after another one";
    }
    cause "Another coordinator has this GPU, or it does not work. The coordinator serves the others. Programs go on where they are served.";
    remedy "The message says why. Name the GPUs that are meant: `baton serve --gpu 0,2`.";

    section "Taking programs off the GPU"; "";

    topic {
        message B0540 others_go_on_with_its_memory(program) =
            "{program} does not answer: others go on without it, with its memory if they need that";
    }
    cause "The program is `unresponsive`: it was stopped (Ctrl-Z, a debugger), or the machine is overloaded. Others do not wait for it. \
           Its \
           work is paused, and its memory is copied to the host as far as others need it.";
    remedy "Let it go on (`kill -CONT`), and it finds all as it was; or end it.";

    topic {
        message B0541 others_go_on_with_the_rest(program) =
            "{program} does not answer; others go on with the memory that it does not have";
    }
    cause "The program is `unresponsive` (B0540), and its work cannot be paused (`--no-preempt`, MPS; `baton doctor` says why). It keeps \
           the memory that it has on the GPU.";
    remedy "Let it go on, or end it.";

    topic {
        message B0542 stuck_is_killed(program, process) = "{program} ({process}) does not answer, and others wait for it: it is killed";
        message B0543 stuck_may_not_be_killed(program, process) =
            "{program} ({process}) does not answer, and the coordinator may not kill it: others wait for it";
        message B0544 user_is_kept_out(user, seconds) =
            "no more programs of user {user} are let in for {seconds} s: others had to wait for one that did not answer";
        message B0545 is_kept_out(user, seconds) =
            "others had to wait for a program of user {user} that did not answer: no more of them are let in for {seconds} s";
    }
    cause "A program did not answer for `--stuck-after` (10 s; 1 s at most if it is another user's and cannot be paused), while others \
           waited \
           for what cannot be taken from it: its work where that cannot be paused, memory that cannot move, memory that only programs of its \
           own user could have, or all its memory with `--isolation strict`. Programs of other users (`--allow-uid`) are killed then; for \
           your own, others wait, and `baton why` names them. `--on-stuck wait` and `--on-stuck kill` do the same for all. New programs of \
           that user wait for nine times as long as others had to, and then come in by themselves.";
    remedy "A coordinator that is not root's may not kill another user's program: end it yourself, or have that user do it.";

    topic {
        message B0546 work_did_not_end(program) = "the work of {program} did not end in time; it keeps the GPU until the next try";
    }
    cause "The program's queued work takes longer than a second and cannot be preempted. The coordinator tries again, with more time. If \
           it \
           never ends, the work waits for something that the program has yet to do, and keeps the GPU.";
    remedy "`baton doctor` says whether programs can be preempted here.";

    topic {
        message B0547 cannot_be_preempted(program, error) =
            "{program} cannot be preempted, so switches wait for its work: {error}";
        message B0548 could_not_be_preempted(program, error) =
            "{program} could not be preempted, so its work is waited for: {error}";
        message B0549 cannot_run_beside_others(program, error) = "{program} cannot run at the same time as others: {error}";
        message B0550 driver_cannot_pause() = "this driver cannot pause";
        message B0551 work_on_another_gpu() = "the work that it offers to pause is on another GPU";
        message B0552 control_device_failed(error) = "the driver's control device: {error}";
        message B0553 resource_manager_answers(status) = "the driver's resource manager answers {status}";
    }
    cause "The driver refuses preemption, for this program or for all: with MPS, vGPU, WSL or gVisor, with other drivers, and for programs \
           that also draw. Results are right; switches take longer, and programs that cannot run at the same time as others take turns.";
    remedy "`baton serve --no-preempt` stops the attempts.";

    topic {
        message B0554 work_of_another_process() = "the work that it offers to pause belongs to another process";
    }
    cause "On the simulated driver a program has named another one's work in place of its own. Nothing was done to that.";

    topic {
        message B0555 could_not_be_preempted_again(program, error) = "{program} could not be preempted again: {error}";
        message B0556 could_not_be_resumed(program, error) = "{program} could not be resumed: {error}";
        message B0557 could_not_be_descheduled(program, error) = "{program} could not be descheduled or rescheduled: {error}";
        message B0558 is_killed(program, process, why) = "{program} ({process}) is killed: {why}";
    }
    cause "The driver refused to take work off the GPU, or to put it back. The coordinator tries again; a program that cannot be put right \
           is killed.";
    remedy "If this happens repeatedly, use `baton serve --no-preempt`.";

    topic {
        message B0559 is_resumed_for_a_while(program) =
            "{program} is resumed for a while: its driver cannot unmap memory before its work has ended";
        message B0560 cannot_unmap_yet(program) =
            "{program} cannot unmap memory before its work goes on: others have it until its turn";
    }
    cause "The driver waits for work that is off the GPU. The program's work may end first, for a moment. If it does not, others get the \
           program's memory all the same, and leave it when it is the program's turn.";
    remedy "If it happens often, use `baton serve --no-preempt`.";

    topic {
        message B0561 too_few_descriptors_to_preempt(program) =
            "{program} cannot be preempted, because the coordinator can open no more descriptors: start it with a higher `ulimit -n`";
    }
    cause "Switches wait for the end of this program's work.";
    remedy "Start the coordinator with a higher `ulimit -n`.";

    section "Connections"; "";

    topic {
        message B0570 refused_a_connection(why) = "refused a connection: {why}";
    }
    cause "A program or a tool was refused. It has got the same reason.";
    remedy "Look for the reason by the other identifier.";

    topic {
        message B0571 not_for_this_user(user) = "this coordinator takes in no programs of user {user} (`baton serve --allow-uid`)";
        message B0572 not_for_guests() = "only root and the user who runs this coordinator may ask for its state and stop it";
    }
    cause "A coordinator serves its own user and root. With `--allow-uid` it takes in other users' programs too, whose users cannot ask \
           how \
           it stands, nor stop it (`baton status`, `top`, `stop`).";
    remedy "Allow the user, or start a coordinator of that user's own.";

    topic {
        message B0573 may_not_steer(user, program) =
            "user {user} has no program called {program} here; only root and the user who runs this coordinator may steer programs of others";
        message B0574 would_steer_others(program) =
            "{program} shares memory with programs of other users, which would go with it; only root and the user who runs this coordinator may \
             steer those";
    }
    cause "Another user may steer its own programs (`baton set`, `suspend`, `resume`, `evict`, `prefetch`) and no others. The message does \
           not tell whether another user has such a program.";
    remedy "Ask the user who runs the coordinator, or root.";

    topic {
        message B0575 connections_are_full() = "there are as many connections as the limit on descriptors allows";
        message B0576 cannot_take_in(error) = "no connection can be taken in: {error}";
        message B0577 newcomers_wait(why) = "{why}; new programs have to wait. A higher limit (`ulimit -n`) would help";
    }
    cause "Programs that come now wait.";
    remedy "Start the coordinator with a higher `ulimit -n`.";

    topic {
        part B0578 more_before(line, count) = "{line} ({count} more like this before)";
        part B0579 more_like_this(count, line) = "{count} more like this: {line}";
    }
    cause "Something happens very often: connections of a user who is not let in, say. The log has ten such lines at once and then one a \
           second, with the number of those that were left out.";
    remedy "`--log-level debug` leaves out none of what it adds.";

    topic {
        message B0580 no_program_can_join(error) = "no program can join any more: {error}";
    }
    cause "The coordinator can no longer listen at its socket, and ends. Mostly its folder was removed or changed.";
    remedy "The next `baton run` starts another one.";

    topic {
        message B0581 socket_is_there_again(path) = "the coordinator's socket was removed; it is there again, at {path}";
    }
    cause "A logout, a clean-up of `/tmp` or a user has removed the socket, or its folder. Programs find the coordinator as before.";

    topic {
        message B0582 cannot_be_found(error) = "new programs cannot find the coordinator: {error}";
        message B0583 place_is_taken(path) = "{path}: this was put in the place of the coordinator's socket; remove it";
    }
    cause "The socket was removed and cannot be put there again, for the reason given. The coordinator tries again every second; the \
           programs that it has go on.";
    remedy "Remove what is in the way, or make the folder again.";

    topic {
        message B0584 is_disconnected(program, process, why) = "{program} ({process}) is disconnected: {why}";
        part B0585 CONNECTION_ENDED = "the connection ended";
    }
    cause "*The connection ended*: the program has ended, or replaced itself by another one, and nothing is wrong. Any other reason is \
           under \
           [errors between Baton's parts](#errors-between-batons-parts).";

    section "Quotas"; "";

    topic {
        message B0589 quota_forbids(quota) = "{quota}";
        message B0590 is_scheduled_otherwise(program, quota) = "{program} is not scheduled as it asked for: {quota}";
        part B0591 is_held_by_a_quota(program, quota) = "{program} is held by a quota: {quota}";
        message B0592 quota_is_used_up(program, mib, quota) = "{program} asked for {mib} MiB and got none: {quota}";
        message B0593 lease_quota_is_used_up(program, mib, left, quota) =
            "{program} asked for {mib} MiB and got none ({left} are left): {quota}";
    }
    cause "A program of another user has met a limit, which the message names: `--guest-arena` (memory of one program), `--guest-arena` \
           and \
           `--guest-host-pool` (of all programs of its user), `--guest-leases` (what does not move), `--guest-programs`, `--guest-class` or \
           `--guest-weight`. Memory above it is refused as where the GPU is full (`CUDA_ERROR_OUT_OF_MEMORY`), and `cuMemGetInfo` tells of \
           no more than there is of the quota; the program may be told to use less. A class or a weight above the best is lowered. A program \
           too many waits for one of its user's to end.";
    remedy "The user who runs the coordinator may raise the limit and start it anew, or change a single program (`baton set NAME \
            class=latency`).";

    section "Metrics and page"; "";

    topic {
        message B0594 pods_are_unknown(error) = "metrics do not name pods: kubelet does not answer: {error}";
    }
    cause "`--pod-resources` names another socket than kubelet's, or the container has not got it. Until kubelet answers, metrics have no \
           `namespace`, `pod` and `container`.";
    remedy "Name kubelet's socket, and mount it.";

    topic {
        message B0595 page_is_open_to_all() =
            "the page can be reached from other machines, and nothing of it is encrypted, its token included";
    }
    cause "`--http` names an address that others can reach.";
    remedy "Where you do not trust the network, use `127.0.0.1` and `ssh -L`.";

    topic {
        message B0596 no_metrics(error) = "there are no metrics: {error}";
        message B0597 is_no_own_socket(path) = "{path}: this is no socket of yours, another user may have put it there; remove it";
    }
    cause "The socket for metrics beside the coordinator's could not be made. Programs do not need it.";
    remedy "Look whose the file is and remove it, or name a shorter path with `--socket`.";

    section "At its end"; "";

    topic {
        message B0598 ended_without_harm(programs) = "ended; these go on without it: {programs}";
        message B0599 ended_with_memory(programs, rest) =
            "ended with memory of programs that cannot go on without it: {programs}{rest}";
        part B0600 others_go_on(programs) = "; the others go on: {programs}";
    }
    cause "You stopped the coordinator while programs were there. Those that *cannot go on* lost memory, and their calls fail.";
    remedy "End them. To avoid that, stop a coordinator when `baton status` shows no programs.";

    section "What happens when all is well"; "";

    topic {
        message B0601 serves(number, name, socket) = "serving GPU {number} ({name}) at {socket}";
        message B0602 metrics_are_at(address) = "metrics at http://{address}/metrics";
        message B0603 has_arena_and_pool(arena, pool) = "arena {arena}, host pool {pool}";
        message B0604 host_pool_is_ready(mib) = "host pool of {mib} MiB is ready";
        message B0605 joined(program, class, process) = "{program} ({class}, {process}) joined";
        message B0606 is_scheduled_now(program, class, weight) = "{program} is now {class}, weight {weight}";
        message B0607 answers_again(program) = "{program} answers again";
        message B0608 ends_after_the_last() = "ends after the last program, as was asked for (`baton stop`)";
        message B0609 ends_now() = "ends now, as was asked for (`baton stop`)";
        message B0610 may_join_again() = "programs may join again, as was asked for (`baton stop --cancel`)";
        message B0611 end_is_taken_back() = "programs may join again: the command that asked for the end (`baton stop`) has gone";
    }
    cause "Nothing to do.";

    topic {
        part B0612 OTHER_NAMESPACE = "a process of another PID namespace";
    }
    cause "This in place of a process's number is a program in a container.";

    section "When a coordinator has died"; "A keeper starts the next one ([takeover.md](design/takeover.md)).";

    topic {
        message B0613 coordinator_died(how) = "the coordinator died ({how}); the next one starts, and its programs go on";
        message B0614 coordinator_dies_too_often(how) =
            "the coordinator has died ({how}), and its programs have waited long enough: it is not started again";
    }
    cause "The coordinator was killed, or has a fault. Its keeper starts it again, at most three times a minute, while programs wait. When none \
           has served for `--orphan-wait`, the keeper ends too: programs whose memory is not all on the GPU can go on no more.";
    remedy "Look at the lines before, and at the system's log for the reason (out of memory, for example). If it is not started again, start \
            `baton serve` yourself.";

    topic {
        message B0615 came_back(program) = "{program} goes on with this coordinator";
        message B0616 cannot_come_back(number, error) = "program number {number} cannot go on with this coordinator: {error}";
        message B0617 nothing_to_take_over(count) =
            "{count} programs of the coordinator before cannot go on with this one: the settings are others, or the keeper had just died too";
        part B0618 NOT_FOUND_AGAIN = "not all of its memory was found again";
    }
    cause "A coordinator has taken over from one that had died. A program whose connection has ended, or whose memory is not all there, cannot \
           go on with it.";
    remedy "Start the program again if its calls fail.";

    topic {
        message B0619 keeper_is_gone(why, error) =
            "the keeper is gone ({why}), and there is no other ({error}): when this coordinator dies now, none will take over";
    }
    cause "The process that would start the next coordinator has died, and cannot be started again now. The coordinator tries that again: \
           after a second, or, if keepers die more than three times a minute, after that.";
    remedy "If it comes again and again, look at the lines before, and at the limits on processes and memory.";

    topic {
        message B0620 frame_cannot_be_had(error) = "memory of the coordinator before cannot be had: {error}";
    }
    cause "The driver refuses memory that the keeper holds. The coordinator ends with this error, and the keeper starts another one, which tries \
           again.";
    remedy "If it comes again and again, look at the system's log for the driver's errors.";

    topic {
        message B0621 keeper_is_replaced(why) = "the keeper is gone ({why}); another one holds all that it had";
        part B0622 STARTED_TOO_OFTEN = "it was started too often";
        part B0623 UNKNOWN_DEATH = "it is not known how";
        message B0624 has_another_keeper() = "another `baton serve` keeps this coordinator from now on";
        message B0625 has_its_keeper(error) = "the coordinator has a keeper, or is to have none ({error})";
        part B0626 WITHOUT_KEEPER = "it was started without one";
        message B0627 keeps_the_one_at(socket) = "this keeps the coordinator that serves already, at {socket}, with its own settings";
        part B0628 KEEPS_ANOTHER = "keeps the coordinator that serves already";
    }
    cause "The process that would start the next coordinator was killed, or did not answer for a second and was killed for that. The \
           coordinator has started another one, at most three times a minute. Programs do not notice.";

    topic {
        message B0629 successor_prepares(file) = "another version prepares to follow: {file}";
        message B0630 hands_over(programs) = "another version goes on with {programs} programs";
        message B0631 upgrade_failed(why) = "no other version follows: {why}";
        message B0632 successor_has_ended() = "the other version's coordinator ended before it was ready; its reason is in the log";
        message B0633 successor_is_late() = "the other version's coordinator was not ready in time";
        message B0634 work_does_not_end() = "copies or preempting calls that are under way do not end";
        message B0635 no_upgrade_without_keeper() = "the coordinator has no keeper (`--no-keeper`), which would start the other version";
        message B0636 no_upgrade_at_the_end() = "the coordinator is about to end";
        message B0637 no_upgrade_now() = "another upgrade is under way; try again soon";
    }
    cause "`baton upgrade` has asked for another version of the coordinator, which goes on with all programs. If it cannot, the one that serves \
           stays, and programs do not notice.";
    remedy "See the lines before for the other version's reason, and ask again.";

    topic {
        message B0638 would_follow(serves, this, oldest, newest, programs) =
            "version {this} would follow version {serves} (it speaks contract {oldest} and {newest}); these go on: {programs}";
        part B0639 NO_PROGRAMS = "no programs";
        message B0640 would_not_follow(why) = "not now: {why}";
        message B0641 waits_for_the_other_version() = "this version's coordinator prepares itself";
        message B0642 other_version_serves(version, process, programs, millis) =
            "version {version} (process {process}) goes on with {programs} programs; it answered {millis} ms after the hand-over";
    }
    cause "The results of `baton upgrade` and `baton upgrade --check`.";

    topic {
        message B0643 no_answer_about_the_upgrade() = "the coordinator does not answer";
        message B0644 other_version_does_not_answer() = "this version's coordinator does not answer yet";
        message B0645 path_is_not_unicode(path) = "this program's path is not Unicode: {path}";
    }
    cause "The state of the upgrade is not known.";
    remedy "`baton status` says which process serves.";

    topic {
        message B0646 coordinator_died_again(how, seconds) =
            "the coordinator died again ({how}); the next one starts in {seconds} s, and its programs wait for it";
    }
    cause "A coordinator that dies more than three times a minute is started again only when a minute has passed since the first of these \
           deaths. Programs wait meanwhile, for `--orphan-wait` at most.";
    remedy "Look at the lines before, and at the system's log for the reason.";

    topic {
        message B0647 not_free_for_an_upgrade() = "the coordinator still takes programs over, or prepares the host pool";
    }
    cause "No other version can follow a coordinator that is still beginning; `baton upgrade` waits for that, for `--timeout` at most.";
    remedy "Ask again.";

    topic {
        message B0648 keeper_did_not_hand_over() = "the keeper ended, or did not answer, when it was to hand over";
    }
    cause "The keeper passes on to the other version what it holds. It could not, so the coordinator goes on, and starts another keeper.";
    remedy "Ask again.";

    topic {
        message B0649 another_goes_on(why) = "this coordinator ends, and another one goes on with its programs: {why}";
        message B0650 memory_was_not_copied(program) = "memory of {program} could not be copied";
        message B0651 pool_cannot_be_had(why) = "the host pool of the coordinator before cannot be had: {why}";
    }
    cause "The driver or the system refused something that the coordinator cannot do without. Nothing is lost: another coordinator with a \
           new context tries again. If a program's memory cannot be copied then either, the program is killed.";
    remedy "If it comes again and again, look at the lines before, and at the system's log for the GPU's errors (`Xid`).";

    topic {
        message B0652 slab_is_not_pinned(mib, error) = "{mib} MiB of the host pool are not pinned: {error}";
    }
    cause "The driver did not pin a part of the host pool in which the coordinator before has left data. Copies there are slower.";
    remedy "Restart the coordinator when no program runs, or raise the container's limits.";

    topic {
        message B0653 coordinator_cannot_be_started(error) = "no coordinator can be started: {error}";
    }
    cause "The system did not let the keeper start the next coordinator. It tries again, and programs wait for `--orphan-wait` at most.";
    remedy "Free memory, or raise the limits on processes.";

    topic {
        message B0654 would_leave_behind(programs, oldest, newest) =
            "these programs have a version of Baton's library that it does not know (it speaks contract {oldest} to {newest}): {programs}";
        part B0655 LEFT_BEHIND = "the coordinator is upgraded to a version that does not know this program's version of Baton's library";
        message B0656 would_be_ended(programs) = "with --leave-behind these are killed: {programs}";
    }
    cause "A coordinator speaks with programs of its own version of the contract and of the one before. Programs load Baton's library when they \
           start, and keep it.";
    remedy "Wait until they have ended, or start them again, and upgrade then. `baton upgrade --leave-behind` kills them.";

    topic {
        part B0657 KEEPER_DOES_NOT_ANSWER = "it does not answer";
    }
    cause "The keeper has not said for a second that it has let go of memory, or for five that it works at all: it was stopped, or the machine \
           is very busy. It is killed, and another one takes its place.";

    topic {
        message B0658 hanging_coordinator_is_killed(seconds) = "the coordinator has done nothing for {seconds} s: its keeper kills it";
    }
    cause "The coordinator was stopped (`Ctrl-Z`, a debugger), or waits in the driver. The next one goes on with its programs.";
    remedy "Debug a coordinator that was started with `--no-keeper`.";

    topic {
        part B0659 OTHER_TABLE = "this version does not read the table of the coordinator that serves";
    }
    cause "The table says where all memory is, and its format has changed by more than one version. The upgrade is refused; programs do not \
           notice.";
    remedy "Upgrade by the versions in between, or when no program runs.";

    topic {
        message B0660 is_of_a_gang(program, gang) = "{program} is of gang {gang}: it has the GPU when all others of the gang have theirs";
    }
    cause "The program was started with `baton run --gang`.";
    remedy "None is needed.";
}
