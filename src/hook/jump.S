/* Bodies that C cannot write: syscall, which must hand on every register, and vfork, which returns twice on one stack. */
#if defined(__x86_64__)

	.text
	.globl	syscall
	.type	syscall, @function
syscall:
	.cfi_startproc
	cmp	$511, %rdi
	ja	1f
	lea	hook_syscall_seen(%rip), %rax
	bt	%rdi, (%rax)
	jc	hook_syscall
1:	jmp	*real_syscall(%rip)
	.cfi_endproc
	.size	syscall, . - syscall

/* RTLD_DEEPBIND hides us from what is loaded (php's extensions: php-curl was wholly unseen), so the flag is taken off on the way (E18). A jump and not a call: libc
 * looks at the caller's return address to find the caller's search path. */
	.globl	dlopen
	.type	dlopen, @function
dlopen:
	.cfi_startproc
	cmpb	$0, guest_on(%rip)
	je	1f
	and	$~8, %esi
1:	jmp	*real_dlopen(%rip)
	.cfi_endproc
	.size	dlopen, . - dlopen

/* The child of vfork runs on its parent's stack and thread-local storage until it execs or exits, so the return address must not stay on the stack: it is kept in
 * guest_vfork_return[depth]. The parent counts the depth up before the call and down after it; the child sees it counted and never touches it: hooks that see a
 * depth leave our tables alone (E3). So it holds too where another library's vfork is a fork in truth (ThreadSanitizer's): then the child alone keeps the depth.
 * Depth 8 and beyond is not counted further: still a vfork child. */
	.globl	vfork
	.type	vfork, @function
	.globl	__vfork
	.set	__vfork, vfork
vfork:
	.cfi_startproc
	mov	guest_vfork_depth@gottpoff(%rip), %rax
	mov	%fs:(%rax), %ecx
	cmp	$8, %ecx
	jae	3f
	mov	guest_vfork_return@gottpoff(%rip), %rdx
	lea	(%rdx,%rcx,8), %rdx
	pop	%rsi
	.cfi_adjust_cfa_offset -8
	.cfi_register %rip, %rsi
	mov	%rsi, %fs:(%rdx)
	incl	%fs:(%rax)
	cmpq	$0, real_vfork(%rip)
	je	4f
	call	*real_vfork(%rip)
1:	mov	guest_vfork_depth@gottpoff(%rip), %rcx
	mov	%fs:(%rcx), %esi
	dec	%esi
	test	%eax, %eax
	jz	2f
	mov	%esi, %fs:(%rcx)	/* the parent, after its child; or no child */
2:	mov	guest_vfork_return@gottpoff(%rip), %rdx
	lea	(%rdx,%rsi,8), %rdx
	push	%fs:(%rdx)
	ret
3:	jmp	*real_vfork(%rip)
4:	mov	$58, %eax		/* before our constructor: the system call itself; its rare errors are told as -1 */
	syscall
	cmp	$-4095, %rax
	jb	1b
	or	$-1, %rax
	jmp	1b
	.cfi_endproc
	.size	vfork, . - vfork

	.section .tbss,"awT",@nobits
	.globl	guest_vfork_return
	.hidden	guest_vfork_return
	.type	guest_vfork_return, @object
	.size	guest_vfork_return, 64
	.align	8
guest_vfork_return:
	.zero	64

#endif
	.section .note.GNU-stack,"",@progbits
