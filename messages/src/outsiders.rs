//! Messages about processes on the GPU that do not share it.

use crate::catalogue::group;

group! {
    "Programs without Baton";
    "`baton status`, `baton doctor` and the coordinator's log name processes on the GPU that do not share it:";

    section ""; "";

    topic {
        part B1301 on_the_gpu_without_baton(programs) = "on the GPU without Baton: {programs}";
        message B1302 uses_the_gpu_without_baton(program) = "{program} uses the GPU without Baton";
    }
    cause "Its memory is missing from the GPU, and its work takes time of the programs that share it. A desktop's display server, say, is \
           not \
           listed: only what computes is.";
    remedy "If it is to share, start it with `baton run`.";

    topic {
        part B1303 lost_programs(programs) =
            "started by a program under Baton, and on the GPU without it (has it lost its environment?): {programs}";
        message B1304 is_lost(program) =
            "{program} was started by a program under Baton, uses the GPU and has not joined: has it lost its environment?";
    }
    cause "`ssh`, `sudo`, `cron`, `env -i` and job schedulers start programs without the environment by which they find Baton. Programs \
           are \
           recognised by the chain of their parents, or by the process group or session of `baton run` in a terminal. One that has left all \
           of them, as daemons do, is named above. So is a program of `baton run --optional` that could not join, if it has left them.";
    remedy "Put `baton run` behind them, in front of the program itself: `sudo baton run PROGRAM`.";

    topic {
        part B1305 NO_OUTSIDERS = "no program uses the GPU without Baton";
        part B1306 others_are_unknown(why) = "other users of the GPU are not known: {why}";
        message B1307 others_are_not_known(why) = "other users of the GPU are not known: {why}";
    }
    cause "Not known is not the same as none. The reason follows (B1308 to B1314).";

    topic {
        part B1308 library_says(error) = "NVIDIA's management library (libnvidia-ml.so.1) says: {error}";
        part B1309 OWN_NAMESPACE = "this is a PID namespace of its own (a container), where the driver shows no processes";
        part B1310 OTHER_NAMESPACES = "some programs are of another PID namespace and cannot be told from others";
        part B1311 simulated_driver_answers(code) = "the simulated driver answers with CUDA error {code}";
    }
    cause "The driver's list is only to be had where its management library is (`nvidia-smi` needs it too), and outside of containers.";
    remedy "Run the coordinator on the host, or the container with the host's PID namespace (`--pid=host`).";

    topic {
        part B1312 NO_LOOK_YET = "nobody has looked yet";
        part B1313 NO_LOOK_LATELY = "the driver has not answered that for a while";
        part B1314 NOT_SAID = "the coordinator does not say";
    }
    cause "The coordinator has just started; the driver hangs (does `nvidia-smi` answer?); or the coordinator is an older one.";
}
