package verdict

// Exit is an exit code of the program and what it means.
type Exit struct {
	Code    int
	Meaning string
}

// Exits returns all exit codes in ascending order. Help, man pages and the
// reference are printed from it. The caller owns the slice.
func Exits() []Exit {
	return []Exit{
		{ExitGood, "every node is as wanted, or came as far as was asked"},
		{ExitFailed, "a node failed"},
		{ExitUsage, "usage, map or settings error; no host was contacted"},
		{ExitUnknown, "no node failed, but what came of one is unknown"},
		{ExitDegraded, "no node failed, but units did on one"},
		{ExitDrift, "status alone: a host is not as wanted"},
		{ExitInterrupted, "interrupted"},
	}
}
