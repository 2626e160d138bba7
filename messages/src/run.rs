//! Messages of `baton run`, and of what a program is started with.

use crate::catalogue::group;

group! {
    "baton run";
    "Exit code 125 means that `baton run` or the program's library could not do its work, 126 that the program cannot be run, and 127 that \
     there is none of this name: `baton run: python4: No such file or directory`. A command line that `baton run` does not understand is 125 \
     too. All others are the program's own.";

    section "Starting or finding a coordinator"; "";

    topic {
        message B0101 started_a_coordinator(log) = "started a coordinator; its log is {log}";
    }
    cause "A remark, on a terminal only. The coordinator ends after the last program.";

    topic {
        message B0102 keeps_its_own_settings(settings) = "a coordinator is there already and keeps its own settings, not {settings}";
    }
    cause "A running coordinator keeps its settings, so the ones listed have no effect.";
    remedy "Leave them out, or let its programs end first, or name another GPU.";

    topic {
        message B0103 runs_without_baton(error) = "{error}; running without Baton";
    }
    cause "You gave `--optional`, and the program cannot share the GPU for the reason given.";
    remedy "Look for the reason by the other identifier.";

    topic {
        message B0104 run_waits(text) = "baton run: waiting: {text}";
    }
    cause "The coordinator cannot take another connection just now (B0336). `baton run` tries again until it can.";

    topic {
        part B0110 NO_DRIVER = "there is no NVIDIA driver here";
        part B0111 NO_GPU = "NVIDIA's driver finds no GPU here";
        message B0112 never_simulates(lack, error, run, demo) =
            "{lack} ({error}), and `baton run` never picks the simulated driver by itself\n\
             on a machine with a GPU, install NVIDIA's driver first; without one, these run on a simulated GPU:\n  {run}\n  {demo}";
    }
    cause "Your program needs a GPU. The reason why there is none is in brackets.";
    remedy "In a container, hand over the GPU too (`--gpus all`). To see how Baton works without one, use either command that the message \
            ends with: `baton demo`, or your own command with `--driver sim`. The simulated driver runs few kernels beyond those of the \
            examples.";

    topic {
        message B0115 coordinator_did_not_start(status, said) = "the coordinator could not be started ({status}): {said}";
        part B0116 SAID_NOTHING = "it said nothing";
    }
    cause "The coordinator ended at once. The last line of its log is shown, which has an identifier of its own. If it said nothing, \
           something killed it.";
    remedy "Look for the line under [a coordinator that starts](#a-coordinator-that-starts). If there is none, look at the exit status in \
            brackets and at the system's log (out of memory?).";

    topic {
        message B0117 coordinator_is_not_ready(log) = "the coordinator does not get ready; its log is {log}";
    }
    cause "For a minute it has neither ended nor answered. The driver may hang.";
    remedy "Look at its log, and try `nvidia-smi`.";

    topic {
        message B0120 coordinator_hangs(path) = "{path}: the coordinator does not answer; is it stopped? `kill` it if it hangs";
    }
    cause "The coordinator has said nothing for 10 seconds.";
    remedy "If it was stopped (Ctrl-Z, a debugger), let it go on (`kill -CONT`). Otherwise end it: the file `GPU-….lock` in \
            `/run/user/UID/baton` or `/tmp/baton-UID` begins with its process id. Programs that have all their memory on the GPU go on.";

    topic {
        message B0121 other_driver(socket, driver) =
            "the coordinator at {socket} uses another driver ({driver}) than --driver names; leave that out, or name another --socket";
        message B0122 name_the_driver_file(socket) =
            "the coordinator at {socket} was started with a driver file; name the same one with --driver";
    }
    cause "A program has to use the same driver as its coordinator.";
    remedy "Do what the message says.";

    topic {
        message B0123 other_user_listens(user) =
            "user {user} listens there, neither you nor root; remove the socket, or name another with --socket or BATON_SOCKET";
    }
    cause "The socket belongs to another user's process, which could do anything with your program.";
    remedy "Name a socket in a folder of yours.";

    topic {
        message B0124 none_can_be_started(socket, error) = "no coordinator answers at {socket}, and none can be started there: {error}";
    }
    cause "`baton run` starts a coordinator where none is. Here it cannot, in a container for example, which has the folder read-only.";
    remedy "Start one on the machine with `baton serve`.";

    topic {
        message B0125 no_coordinator_answers() = "no coordinator answers";
    }
    cause "No coordinator listens at this socket.";
    remedy "Start one with `baton serve`, or leave out `--socket`.";

    section "The program"; "";

    topic {
        message B0130 is_static(program) =
            "{program} is statically linked: programs that it starts share the GPU, but it does not itself";
        message B0131 is_32_bit(program) = "{program} is a 32-bit program: programs that it starts share the GPU, but it does not itself";
    }
    cause "Such a program takes no preloaded library. If it only starts others, all is well.";
    remedy "Otherwise use a dynamically linked, 64-bit build.";

    topic {
        message B0132 uses_musl(program) = "{program} uses musl, and Baton's library needs glibc: run a build of the program for glibc";
        message B0133 has_more_rights(program) =
            "{program} runs with more rights than yours (set-user-id, set-group-id or capabilities), so the system preloads nothing: run it as \
             the user whose rights it takes";
    }
    cause "Such a program cannot share the GPU, and does not start.";
    remedy "Do what the message says, or use `--optional`.";

    topic {
        message B0134 cannot_be_run(program, error) = "{program}: {error}";
    }
    cause "The system cannot run the program: exit code 127 if it is not there, 126 otherwise.";
    remedy "Correct its name, or its rights.";

    section "Settings of a program"; "";

    topic {
        message B0140 variable_is_wrong(name, value, wanted) = "{name}={value} is not {wanted}";
        part B0141 A_CLASS = "latency, normal or batch";
        part B0142 A_WEIGHT = "a number from 1 to 1000";
        part B0143 A_TIME = "a number of microseconds";
        part B0144 AN_AMOUNT = "a number of bytes";
        part B0145 A_NUMBER = "a number";
        part B0146 CORRECT_IT = "correct it";
    }
    cause "A variable (`BATON_CLASS`, `BATON_WEIGHT`, `BATON_SLO_MICROS`, `BATON_NEEDS`, `BATON_RUN`) has a value that it cannot have.";
    remedy "Correct or unset it.";

    topic {
        message B0150 no_such_class() = "a class is latency, normal or batch";
        message B0151 no_such_weight() = "a weight is a number from 1 to 1000";
        message B0152 target_is_too_short() = "a target (slo) is at least a microsecond";
        message B0153 target_is_too_long() = "a target (slo) is at most one hour";
        message B0154 no_such_target(error) = "{error}; write for example 20ms";
    }
    cause "An option, a variable or `baton set` has a value that it cannot have.";
    remedy "Write one as the message says.";

    topic {
        message B0155 target_without_latency() = "a target (slo) is for programs of class latency";
        message B0156 weight_with_latency() = "a weight is for programs of class normal or batch";
    }
    cause "Latency programs are ordered by targets, the others by weights.";
    remedy "Leave out the one that does not fit the class, or set another class with it: `baton set NAME class=latency slo=20ms`.";

    topic {
        message B0157 needs_more_than_there_is(bytes, all) =
            "the program needs {bytes} of memory, and arena and host pool together have {all}; start the coordinator with a larger \
             `--host-pool`";
    }
    cause "There can never be as much as the program needs (`baton run --needs`), so it is refused at once.";
    remedy "Start the coordinator with a larger `--host-pool`.";
}
