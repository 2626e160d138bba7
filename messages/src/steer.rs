//! Messages of the commands that show and steer programs.

use crate::catalogue::group;

group! {
    "baton status, set, suspend, resume, evict";
    "`suspend`, `resume`, `evict` and `prefetch` take several programs, by name or process id, and print a line for each. Where one cannot be \
     done, that is said, the others are done all the same, and the exit code is 1. Each waits until it is done, but for no longer than 10 seconds \
     a program, or `--timeout`. With `--no-wait` they only ask for it, and say `suspending …`, `resuming …` or `evicting …`.";

    section ""; "";

    topic {
        message B0801 no_socket(folder) =
            "there is no coordinator's socket in {folder}; `baton serve` starts one, --socket names another place";
        message B0802 no_coordinator(socket) =
            "no coordinator answers at {socket}; `baton serve` starts one, and `baton run` if there is none";
    }
    cause "There is no coordinator, and no record of one either, where the command reads those. It ends after its last program.";
    remedy "If there should be one, `XDG_RUNTIME_DIR` may differ from that of the shell that started it: name its socket with `--socket`.";

    topic {
        message B0803 several_coordinators(list) = "there are several coordinators; say which one:{list}";
    }
    cause "There is one for each GPU.";
    remedy "Name one of those listed.";

    topic {
        message B0804 no_coordinator_of(gpu, folder) = "no coordinator of {gpu} is in {folder}";
        message B0805 no_gpu(number, error) = "GPU {number}: {error}";
    }
    cause "There is no coordinator of that GPU, or no such GPU. `--gpu` takes a number, as `baton serve --gpu` counts, or a UUID as \
           `nvidia-smi -L` prints it.";
    remedy "A coordinator at another place is named with `--socket`; so is one on the simulated driver, or by its UUID.";

    topic {
        message B0806 is_not_suspended_yet(program, state, time) =
            "{program} is still {state} after {time}; it is suspended as soon as its work can be taken off the GPU";
    }
    cause "Nothing is lost: the suspension comes when it can.";
    remedy "`baton why` says what it waits for.";

    topic {
        message B0807 does_not_go_on_yet(program, state, time) =
            "{program} is still {state} after {time}; `baton why {program}` says what it waits for";
    }
    cause "The program does not go on yet, although you let it.";
    remedy "Do what the message says.";

    topic {
        message B0808 is_not_evicted_yet(program, state, time) =
            "{program} is still {state} after {time}; its memory leaves only when its work has ended: wait longer (--timeout), or `baton \
             suspend` it first";
        part B0809 AT_WORK = "at work";
    }
    cause "`baton evict` waits for the program to come to rest, which can take for ever, and has given up.";
    remedy "With `--no-wait` the eviction stands until the program rests, or is in use again.";

    topic {
        message B0810 memory_is_on_its_way(program, time) =
            "memory of {program} is still on its way after {time}; `baton why {program}` says what it waits for";
    }
    cause "The programs that have the GPU get their memory first. `baton prefetch` has given up.";
    remedy "Ask again, with a longer `--timeout`.";

    topic {
        message B0811 no_such_program(program) = "there is no program called {program}; `baton status` lists them";
        message B0812 name_is_too_long(bytes) = "no program has a name of more than {bytes} bytes";
    }
    cause "Programs with the same name get a number: `train-2`. A program is there from its first use of the GPU on.";
    remedy "Write the name as `baton status` shows it.";

    topic {
        message B0813 no_such_change() = "write class=…, weight=… or slo=…";
    }
    cause "These can be set, several at once: `baton set train class=batch weight=3`.";
    remedy "Do what the message says.";

    topic {
        message B0814 waits_for_the_work() =
            "waiting until the program's work has ended; `baton suspend` takes it off the GPU before";
    }
    cause "`baton evict` waits for that, up to its `--timeout`.";

    topic {
        message B0815 is_in_use_again() = "the program is in use again; `baton suspend` it first";
    }
    cause "The program had work again before all of its memory was out.";
    remedy "`baton suspend` it first.";

    topic {
        message B0816 program_does_not_answer() = "the program does not answer";
    }
    cause "The program is `unresponsive`, as the coordinator's log says (B0540).";

    topic {
        message B0817 program_has_left() = "the program has left";
        message B0818 has_left(program) = "{program} has left";
    }
    cause "It has ended. Its memory is free.";

    topic {
        message B0819 no_room_on_the_host() = "there is no room on the host; a larger --host-pool would help";
    }
    cause "The host pool is full.";
    remedy "Start the coordinator with a larger `--host-pool`.";

    topic {
        message B0820 many_evictions(most) = "{most} evictions wait already; try again when one is over";
    }
    cause "So many `baton evict` wait for programs that are at work.";
    remedy "Try again later.";

    topic {
        message B0821 coordinator_hung_up() = "the coordinator ended the connection";
    }
    cause "It ended while you asked.";
    remedy "Try again. If it happens again, look at its log.";

    topic {
        message B0822 coordinators_answer_is_unreadable(error) = "the coordinator's answer cannot be read: {error}";
        message B0823 answer_is_unreadable(error) = "the answer cannot be read: {error}";
    }
    cause "The command and the coordinator are of different builds.";
    remedy "Use one.";

    topic {
        message B0824 time_outs_go_on(program) =
            "{program} is of a gang, whose time-outs go on: PyTorch ends a rank 10 minutes into a collective, if `init_process_group` was given no \
             other `timeout`";
    }
    cause "Watchdogs of frameworks count the time of the clock, also while a program is suspended or waits. PyTorch with NCCL ends a process \
           whose collective has not ended in time, with SIGABRT; XLA one whose GPUs do not meet in time. Nothing is lost before that.";
    remedy "Let the program go on in time (`baton resume`), or give it longer time-outs before it starts: [limits.md](limits.md#time-outs).";

    section "In the table of `baton status`"; "";

    topic {
        part B0830 smaller_than_asked(bytes) = "(smaller than the {bytes} asked for: others use the GPU's memory)";
    }
    cause "Contexts, code and unmanaged memory have taken what was to be the arena's, as the coordinator's log says (B0523).";

    topic {
        part B0831 being_prepared(bytes) = ", being prepared: {bytes} ready";
    }
    cause "The host pool is still being pinned. Programs run meanwhile; evictions wait.";

    topic {
        part B0832 switches_wait_for(programs) = "cannot be preempted, so a switch waits for their work: {programs}";
    }
    cause "The coordinator's log says why (B0547).";

    topic {
        part B0833 is_not_moved(why, programs) = "not moved, because {why}: {programs}";
        part B0834 EXPORTED_MEMORY = "another process or device has it mapped";
        part B0835 ARRAY_MEMORY = "arrays have no addresses";
        part B0836 FOREIGN_MEMORY = "it is another program's or another interface's";
        part B0837 POOL_MEMORY = "it is in a pool of the driver's own";
        part B0838 REACHABLE_MEMORY = "others can reach it";
        part B0839 OTHER_MEMORY = "the arena has no memory of that kind";
        part B0840 GRAPH_MEMORY = "the driver gives it out when graphs run";
        part B0841 MANAGED_MEMORY = "the driver itself moves managed memory";
    }
    cause "Memory of these programs that stays on the GPU, and why. It is part of *unmanaged*. It goes when the program frees it or ends.";

    topic {
        part B0842 is_kept_spare(programs) = "freed, and kept until its program next leaves the GPU: {programs}";
    }
    cause "Memory that was evicted comes back in pieces of up to 32 MiB. The program has freed parts of some, and uses the rest. It uses \
           these parts first when it asks for memory; when it needs them in one piece, or next leaves the GPU, they are given back.";

    topic {
        part B0843 no_more_share(programs) = "no more than {programs} share the GPU at once (--max-programs)";
    }
    cause "The programs listed wait for others to leave.";
    remedy "Start the coordinator with a larger `--max-programs`.";
}
