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

/* The child of vfork runs on its parent's stack and thread-local storage until it execs or exits, so the return address must not stay on the stack: it is kept in
 * guest_vfork_return[depth]. The child counts itself in guest_vfork_depth, the parent takes that back when it goes on: hooks that see a depth leave our tables alone (E3).
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
	jae	4f
	mov	guest_vfork_return@gottpoff(%rip), %rdx
	lea	(%rdx,%rcx,8), %rdx
	pop	%rsi
	.cfi_adjust_cfa_offset -8
	.cfi_register %rip, %rsi
	mov	%rsi, %fs:(%rdx)
	cmpq	$0, real_vfork(%rip)
	je	5f
	call	*real_vfork(%rip)
1:	mov	guest_vfork_depth@gottpoff(%rip), %rcx
	test	%eax, %eax
	js	2f
	jz	3f
	decl	%fs:(%rcx)		/* the parent, after its child */
2:	mov	%fs:(%rcx), %esi
	mov	guest_vfork_return@gottpoff(%rip), %rdx
	lea	(%rdx,%rsi,8), %rdx
	push	%fs:(%rdx)
	ret
3:	mov	%fs:(%rcx), %esi	/* the child */
	mov	guest_vfork_return@gottpoff(%rip), %rdx
	lea	(%rdx,%rsi,8), %rdx
	incl	%fs:(%rcx)
	push	%fs:(%rdx)
	ret
4:	jmp	*real_vfork(%rip)
5:	mov	$58, %eax		/* before our constructor: the system call itself; errors are rare enough to be -1 alone */
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
