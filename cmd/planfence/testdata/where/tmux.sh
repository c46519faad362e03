## act
tmux -f /dev/null new-session -d -s work 'echo in tmux > f; tmux wait-for -S written; sleep 60'
tmux wait-for written
tmux kill-server
grep -qx 'in tmux' f
